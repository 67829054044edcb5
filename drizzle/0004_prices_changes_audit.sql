-- What triggers write beside a change: price versions, messages for the caches, the audit log.

-- The present prices of a model, as PriceParts of src/ledger/price.ts: micro-USD per million tokens, per image of a size or
-- size/quality, and per request. Parts without a price are left out; cached input without a price costs the input price.
CREATE FUNCTION prices_of(p_model text) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object(
    'tokens', CASE WHEN m.input_micro_usd IS NOT NULL THEN jsonb_build_object('input', m.input_micro_usd,
      'cached_input', coalesce(m.cached_input_micro_usd, m.input_micro_usd), 'output', m.output_micro_usd)
      || (m.further_prices - 'request') END,
    'request', m.further_prices -> 'request',
    'images', (SELECT jsonb_object_agg(CASE i.quality WHEN 'standard' THEN i.size ELSE i.size || '/' || i.quality END, i.micro_usd) FROM image_prices i WHERE i.model_id = m.id)))
  FROM models m WHERE m.id = p_model
$$;
--> statement-breakpoint

-- Writes the next version of a model's prices if they changed. Done by triggers, so that no writer can forget it, and at the end
-- of the transaction, so that all its changes become one version. Locks the model's row first: of two concurrent changes the second
-- sees what the first wrote. Argument: the column with the model's id.
CREATE FUNCTION note_price_version() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_model text := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END) ->> TG_ARGV[0];
  v_prices jsonb;
BEGIN
  PERFORM FROM models WHERE id = v_model FOR NO KEY UPDATE;
  v_prices := prices_of(v_model);
  IF v_prices IS DISTINCT FROM (SELECT prices FROM price_versions WHERE model_id = v_model ORDER BY id DESC LIMIT 1)
    AND v_prices IS NOT NULL THEN
    INSERT INTO price_versions (model_id, prices) VALUES (v_model, v_prices);
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER models_price_version AFTER INSERT OR UPDATE OF input_micro_usd, cached_input_micro_usd, output_micro_usd, further_prices
  ON models
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_price_version('id');
--> statement-breakpoint
CREATE CONSTRAINT TRIGGER image_prices_price_version AFTER INSERT OR DELETE OR UPDATE ON image_prices
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_price_version('model_id');
--> statement-breakpoint

-- Prevents changes of a table whose rows receipts refer to.
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never changed: receipts name them', TG_TABLE_NAME;
END $$;
--> statement-breakpoint
CREATE TRIGGER price_versions_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON price_versions FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
--> statement-breakpoint

-- Tells the caches what changed, and raises the epoch of the account concerned: nothing is granted from what was read or drawn at an
-- earlier epoch. A trigger, so that no writer can forget it, not even a person with psql.
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  -- Two, if the row has moved from one to the other.
  v_refs text[] := ARRAY(
    SELECT DISTINCT coalesce(v_row ->> TG_ARGV[1], '')
    FROM unnest(ARRAY[CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) END, CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) END]) AS v_row
    WHERE v_row IS NOT NULL);
BEGIN
  INSERT INTO changes (kind, ref) SELECT TG_ARGV[0], ref FROM unnest(v_refs) AS ref;
  IF TG_ARGV[0] = 'account' THEN
    INSERT INTO epochs AS e (account_id, epoch)
    SELECT ref::bigint, 1 FROM unnest(v_refs) AS ref WHERE ref <> '' ORDER BY ref::bigint
    ON CONFLICT (account_id) DO UPDATE SET epoch = e.epoch + 1;
  END IF;
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER accounts_changed AFTER INSERT OR DELETE OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note_change('account', 'id');
--> statement-breakpoint
CREATE TRIGGER keys_changed AFTER INSERT OR DELETE OR UPDATE ON keys FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER packages_changed AFTER INSERT OR DELETE OR UPDATE OF starts_at, ends_at ON packages FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER entries_changed AFTER INSERT ON balance_entries FOR EACH ROW WHEN (NEW.kind <> 'charge') EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
CREATE TRIGGER payg_changed AFTER UPDATE OF payg_enabled ON balances FOR EACH ROW EXECUTE FUNCTION note_change('account', 'account_id');
--> statement-breakpoint
-- A host that begins or ends to be served is a change of its reseller. What a check notes is none: checks of one domain must not
-- cost the customers of others their caches.
CREATE TRIGGER hosts_added AFTER INSERT ON hosts FOR EACH ROW WHEN (NEW.status = 'active') EXECUTE FUNCTION note_change('account', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER hosts_changed AFTER UPDATE ON hosts FOR EACH ROW WHEN ((OLD.status = 'active' OR NEW.status = 'active')
    AND (OLD.host, OLD.reseller_id, OLD.status) IS DISTINCT FROM (NEW.host, NEW.reseller_id, NEW.status))
  EXECUTE FUNCTION note_change('account', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER hosts_removed AFTER DELETE ON hosts FOR EACH ROW WHEN (OLD.status = 'active') EXECUTE FUNCTION note_change('account', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER brands_changed AFTER INSERT OR DELETE OR UPDATE ON brands FOR EACH ROW EXECUTE FUNCTION note_change('account', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER models_changed AFTER INSERT OR DELETE OR UPDATE ON models FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'id');
--> statement-breakpoint
CREATE TRIGGER image_prices_changed AFTER INSERT OR DELETE OR UPDATE ON image_prices FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'model_id');
--> statement-breakpoint
CREATE TRIGGER routes_changed AFTER INSERT OR DELETE OR UPDATE ON routes FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'model_id');
--> statement-breakpoint
CREATE TRIGGER providers_changed AFTER INSERT OR DELETE OR UPDATE ON providers FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'name');
--> statement-breakpoint
-- What an operator set is part of the catalog; the state of a key is not, and is loaded by itself.
CREATE TRIGGER provider_keys_changed AFTER INSERT OR DELETE OR UPDATE OF provider_id, name, key_ciphertext, weight, enabled ON provider_keys FOR EACH ROW EXECUTE FUNCTION note_change('catalog', 'id');
--> statement-breakpoint
CREATE TRIGGER provider_key_states_changed AFTER UPDATE OF state, until, met_account_id, met_payer_id ON provider_keys FOR EACH ROW EXECUTE FUNCTION note_change('provider_key', 'id');
--> statement-breakpoint
CREATE TRIGGER provider_key_pauses_changed AFTER INSERT OR UPDATE ON provider_key_pauses FOR EACH ROW EXECUTE FUNCTION note_change('provider_key', 'key_id');
--> statement-breakpoint
CREATE TRIGGER sessions_changed AFTER DELETE OR UPDATE OF expires_at, viewing_account_id, work_account_id ON sessions FOR EACH ROW EXECUTE FUNCTION note_change('session', 'account_id');
--> statement-breakpoint

-- The audit log: what a person changed, written in the same transaction by triggers, so that no writer can forget it. The person
-- is in the transaction's settings (`changing` in src/platform/changes_store.ts sets them); without them it was the command line or
-- the service itself. Arguments: the column with the row's id; the column with the account concerned, or ''; the columns that are
-- always shown, separated by commas. Columns that the service maintains are left out. Numbers, booleans and instants (`_at`) are shown;
-- of all other columns those in k_shown only. So a new column with a secret is hidden, whatever its name.
CREATE FUNCTION note_audit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  k_kept_up text[] := '{totp_last_step,revoked_at,checked_at,next_check_at,failures,report,css,version,units_taken,tokens_taken,tokens_used,balance_nano_usd,held_nano_usd,used,state,since,until,why,probed_at,met_account_id,met_payer_id,counter,last_used_at,next_invoice,asked,ask_at,asked_at,try_at,failing_since,old_secret_until,trial_try_at,trial_why}';
  k_shown text[] := '{accent,address,allowed_domains,allowed_params,answer,architecture,base_url,body,brand,client_id,components,currency,dialect,dropped_params,email,ended_early,external_id,facts,first_day,forbidden_domains,from_address,from_name,further_prices,holder,host,hosts,id,impact,instructions,invoice_address,invoice_name,issuer,kind,kinds,language,last_four,limits,mail_domains,method,modality,mode,model_id,model_ids,name,networks,new_email,note,old_email,origin,outcome,owned_by,owned_domain,paused_why,pay_with,prefix,privacy_url,problem,proved_domains,quality,reason,reference,request_bounds,request_id,request_key,role,role_claim,roles,route_choice,scopes,shop_url,size,source,status,steps,suffix,support,tax,tax_country,tax_line,tax_number,terms_url,time_zone,title,told_currency,total_spend_from,transports,trial,trial_pay_with,upstream_model,user_name,vat_number,waits_for,written_in}';
  v_old jsonb := CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - k_kept_up END;
  v_new jsonb := CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - k_kept_up END;
  v_row jsonb := coalesce(v_new, v_old);
  v_before jsonb;
  v_after jsonb;
BEGIN
  IF v_old = v_new THEN RETURN NULL; END IF;
  SELECT jsonb_object_agg(key, CASE WHEN shown OR jsonb_typeof(v_old -> key) IN ('number', 'boolean') THEN v_old -> key ELSE '"(hidden)"' END)
           FILTER (WHERE v_old ->> key IS NOT NULL),
         jsonb_object_agg(key, CASE WHEN shown OR jsonb_typeof(v_new -> key) IN ('number', 'boolean') THEN v_new -> key ELSE '"(hidden)"' END)
           FILTER (WHERE v_new ->> key IS NOT NULL)
  INTO v_before, v_after
  FROM jsonb_object_keys(v_row) AS key CROSS JOIN LATERAL (SELECT key = ANY (k_shown) OR key ~ '_at$' AS shown) AS may
  WHERE v_old -> key IS DISTINCT FROM v_new -> key OR key = ANY (string_to_array(TG_ARGV[2], ','));
  INSERT INTO audit_entries (actor_id, token_id, request_id, action, subject, subject_id, account_id, before, after)
  VALUES (nullif(current_setting('tollgate.actor_id', true), '')::bigint, nullif(current_setting('tollgate.token_id', true), '')::bigint,
    nullif(current_setting('tollgate.request_id', true), '')::uuid,
    CASE TG_OP WHEN 'INSERT' THEN 'added' WHEN 'DELETE' THEN 'removed' ELSE 'changed' END,
    TG_TABLE_NAME, v_row ->> TG_ARGV[0], (v_row ->> nullif(TG_ARGV[1], ''))::bigint, v_before, v_after);
  RETURN NULL;
END $$;
--> statement-breakpoint
CREATE TRIGGER accounts_audit AFTER INSERT OR DELETE OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'id');
--> statement-breakpoint
CREATE TRIGGER links_audit AFTER INSERT OR DELETE OR UPDATE ON links FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER keys_audit AFTER INSERT OR DELETE OR UPDATE ON keys FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER packages_audit AFTER INSERT OR DELETE OR UPDATE OF starts_at, ends_at ON packages FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER payg_audit AFTER UPDATE OF payg_enabled ON balances FOR EACH ROW EXECUTE FUNCTION note_audit('account_id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER entries_audit AFTER INSERT ON balance_entries FOR EACH ROW WHEN (NEW.kind <> 'charge') EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER allotments_audit AFTER INSERT OR DELETE OR UPDATE ON allotments FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER orders_audit AFTER INSERT OR DELETE OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note_audit('id', 'account_id');
--> statement-breakpoint
CREATE TRIGGER hosts_audit AFTER INSERT OR DELETE OR UPDATE ON hosts FOR EACH ROW EXECUTE FUNCTION note_audit('host', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER brands_audit AFTER INSERT OR DELETE OR UPDATE ON brands FOR EACH ROW EXECUTE FUNCTION note_audit('reseller_id', 'reseller_id');
--> statement-breakpoint
CREATE TRIGGER offerings_audit AFTER INSERT OR DELETE OR UPDATE ON offerings FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
CREATE TRIGGER models_audit AFTER INSERT OR DELETE OR UPDATE ON models FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
CREATE TRIGGER image_prices_audit AFTER INSERT OR DELETE OR UPDATE ON image_prices FOR EACH ROW EXECUTE FUNCTION note_audit('model_id', '', 'size,quality');
--> statement-breakpoint
CREATE TRIGGER routes_audit AFTER INSERT OR DELETE OR UPDATE ON routes FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
CREATE TRIGGER providers_audit AFTER INSERT OR DELETE OR UPDATE ON providers FOR EACH ROW EXECUTE FUNCTION note_audit('id', '');
--> statement-breakpoint
-- An admin has ended the hour.
CREATE TRIGGER losses_audit AFTER UPDATE OF hour_amount ON losses FOR EACH ROW WHEN (NEW.hour_amount = 0 AND OLD.hour_amount > 0) EXECUTE FUNCTION note_audit('holder_id', 'holder_id', 'kind');
--> statement-breakpoint
CREATE TRIGGER provider_keys_audit AFTER INSERT OR DELETE OR UPDATE ON provider_keys FOR EACH ROW EXECUTE FUNCTION note_audit('id', '', 'provider_id,name');
