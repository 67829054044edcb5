-- Status pages: sums of answered requests, and incidents that sellers write. Source: STA-1, STA-4.
CREATE TABLE "answer_sums" (
	"component" text NOT NULL,
	"span" smallint NOT NULL,
	"begins" timestamp with time zone NOT NULL,
	"answered" bigint NOT NULL,
	"failed" bigint NOT NULL,
	CONSTRAINT "answer_sums_component_span_begins_pk" PRIMARY KEY("component","span","begins"),
	CONSTRAINT "answer_sums_span" CHECK ("answer_sums"."span" in (5, 1440)),
	CONSTRAINT "answer_sums_counts" CHECK ("answer_sums"."answered" >= 0 and "answer_sums"."failed" >= 0)
);
--> statement-breakpoint
CREATE TABLE "incident_updates" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "incident_updates_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"incident_id" bigint NOT NULL,
	"status" text,
	"body" text NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
--> statement-breakpoint
CREATE TABLE "incidents" (
	"id" bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY (sequence name "incidents_id_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"seller_id" bigint NOT NULL,
	"kind" text NOT NULL,
	"title" text NOT NULL,
	"impact" text,
	"status" text,
	"components" text[] NOT NULL,
	"begins_at" timestamp with time zone NOT NULL,
	"ends_at" timestamp with time zone,
	"version" integer DEFAULT 1 NOT NULL,
	"created_at" timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
	CONSTRAINT "incidents_kind" CHECK ("incidents"."kind" in ('incident', 'maintenance')),
	CONSTRAINT "incidents_form" CHECK (case "incidents"."kind" when 'incident' then "incidents"."impact" in ('degraded', 'outage') and "incidents"."status" in ('investigating', 'identified', 'monitoring', 'resolved') and ("incidents"."status" = 'resolved') = ("incidents"."ends_at" is not null) else "incidents"."impact" is null and "incidents"."status" is null and "incidents"."ends_at" is not null end),
	CONSTRAINT "incidents_times" CHECK ("incidents"."ends_at" >= "incidents"."begins_at"),
	CONSTRAINT "incidents_components" CHECK (cardinality("incidents"."components") between 1 and 50)
);
--> statement-breakpoint
ALTER TABLE "incident_updates" ADD CONSTRAINT "incident_updates_incident_id_incidents_id_fk" FOREIGN KEY ("incident_id") REFERENCES "public"."incidents"("id") ON DELETE cascade ON UPDATE no action;
--> statement-breakpoint
CREATE INDEX "answer_sums_begins" ON "answer_sums" USING btree ("span","begins");
--> statement-breakpoint
CREATE INDEX "incident_updates_incident" ON "incident_updates" USING btree ("incident_id","id");
--> statement-breakpoint
CREATE INDEX "incidents_seller" ON "incidents" USING btree ("seller_id","id");
--> statement-breakpoint
CREATE INDEX "incidents_open" ON "incidents" USING btree ("seller_id","ends_at");
--> statement-breakpoint

-- Status pages are cached by their seller.
CREATE TRIGGER incidents_changed AFTER INSERT OR DELETE OR UPDATE ON incidents FOR EACH ROW EXECUTE FUNCTION note_change('account', 'seller_id');
--> statement-breakpoint
CREATE TRIGGER incidents_audit AFTER INSERT OR DELETE OR UPDATE ON incidents FOR EACH ROW EXECUTE FUNCTION note_audit('id', '', 'seller_id,title');
--> statement-breakpoint
CREATE TRIGGER incident_updates_audit AFTER INSERT ON incident_updates FOR EACH ROW EXECUTE FUNCTION note_audit('id', '', 'incident_id');