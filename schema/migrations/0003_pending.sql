-- breaking: no
-- What needs attention, what is finished, and what may not be published twice.

-- One narrow row per subscription for a message that is not finished.
--
-- ord is the one key of claims: claim columns are in no index, so that a claim
-- is a HOT update; the larger part of each page is left free for it. No foreign key: it
-- would lock one hot row per publish. key_hash is set for messages of ordered
-- streams: those of one hash are delivered one after the other, and all but the
-- first of them are parked.
create table deed.pending (
  subscription  int         not null,
  slot          int         not null,
  id            bigint      not null,
  attempts      int         not null default 0,
  lost_claims   int         not null default 0,
  parked        boolean     not null default false,
  tenant_id     uuid        not null,
  ord_at        timestamptz not null,
  process_after timestamptz,
  ord           timestamptz not null generated always as (coalesce(process_after, ord_at)) stored,
  claimed_at    timestamptz,
  lease_until   timestamptz,
  claim         bigint,
  claimed_by    text,
  dead_at       timestamptz,
  last_error    text,
  key_hash      bigint,
  constraint pending_pkey primary key (subscription, id)
) with (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.2);

create index pending_claim_idx on deed.pending (subscription, ord, id)
  where dead_at is null and not parked;
create index pending_retry_idx on deed.pending (subscription, attempts)
  where attempts > 0 and dead_at is null and not parked;
create index pending_key_idx on deed.pending (subscription, key_hash, id)
  where key_hash is not null;
create index pending_dead_idx on deed.pending (subscription, id)
  where dead_at is not null;

-- One row per finished batch (O16). lost counts the messages that the finish
-- named but whose claim was no longer the caller's (O14).
create table deed.receipts (
  n            bigint      not null generated always as identity,
  subscription int         not null,
  lane         int,
  claim        bigint      not null,
  worker       text        not null,
  claimed_at   timestamptz,
  finished_at  timestamptz not null,
  min_id       bigint,
  max_id       bigint,
  ids          bigint[]    not null,
  attempts     int[],
  finished     int         not null,
  failed       int         not null,
  lost         int         not null,
  constraint receipts_pkey primary key (n),
  constraint receipts_adds_up check (finished = cardinality(ids)),
  constraint receipts_counts_are_counts check (finished >= 0 and failed >= 0 and lost >= 0)
);

create index receipts_ids_idx on deed.receipts using gist (int8range(min_id, max_id, '[]'))
  where finished > 0;

create table deed.publish_keys (
  tenant_id  uuid        not null,
  topic      text        not null,
  key        text        not null,
  id         bigint      not null,
  created_at timestamptz not null,
  used_at    timestamptz not null default clock_timestamp(),
  constraint publish_keys_pkey primary key (tenant_id, topic, key)
);

create index publish_keys_age_idx on deed.publish_keys using brin (used_at);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['pending', 'receipts', 'publish_keys'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I to deed_worker using (true) with check (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I to deed_admin using (true) with check (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;

create policy pending_app on deed.pending for select to deed_app
  using (tenant_id = (
    select coalesce(
      nullif(current_setting('app.current_tenant_id', true), '')::uuid,
      case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
    )
    from deed.settings s
  ));
create policy publish_keys_app on deed.publish_keys for select to deed_app
  using (tenant_id = (
    select coalesce(
      nullif(current_setting('app.current_tenant_id', true), '')::uuid,
      case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
    )
    from deed.settings s
  ));
grant select on deed.pending, deed.publish_keys to deed_app;
grant insert, update, delete on deed.pending to deed_worker;
grant insert on deed.receipts to deed_worker;

grant update on deed.pending to deed_admin;
