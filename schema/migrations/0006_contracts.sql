-- breaking: no
-- What the published SQL faces and operators' acts keep: which packs are
-- installed, who asked for which redrive and how far it is, and that an end may
-- be a discard.

-- The packs of published SQL that are installed by name. While a table of the
-- same name as a pack's relation is emptied into the log, adopting names it.
create table deed.contracts (
  pack         text        not null,
  hash         text        not null,
  adopting     text,
  installed_at timestamptz not null default clock_timestamp(),
  constraint contracts_pkey primary key (pack)
);

-- What a DELETE on a face's relation has named, until the end of the statement.
create table deed.purges (
  xid xid8   not null default pg_current_xact_id(),
  id  bigint not null
);

-- One row per request to put dead letters back: repeating the request goes on
-- from subscription and id. asked is what was asked for: the same request id
-- never means two things.
create table deed.redrives (
  request      text        not null,
  asked        jsonb       not null,
  state        text        not null default 'running',
  rate         int,
  chosen       bigint      not null,
  redriven     bigint      not null default 0,
  upto_id      bigint      not null default 0,
  upto_sub     int         not null default 0,
  actor        text        not null,
  reason       text,
  started_at   timestamptz not null default clock_timestamp(),
  stepped_at   timestamptz not null default clock_timestamp(),
  finished_at  timestamptz,
  constraint redrives_pkey primary key (request),
  constraint redrives_request_is_short check (length(request) between 1 and 200),
  constraint redrives_state_is_known check (state in ('running', 'done', 'cancelled')),
  constraint redrives_end_is_whole check ((state = 'running') = (finished_at is null)),
  constraint redrives_rate_is_positive check (rate >= 1),
  constraint redrives_counts_are_counts check (chosen >= 0 and redriven >= 0)
);

-- A message ends in a receipt, whether it was delivered or given up by a person.
alter table deed.receipts
  add column outcome text not null default 'delivered',
  add constraint receipts_outcome_is_known check (outcome in ('delivered', 'discarded'));

-- At most one subscription of a topic is what the faces claim.
create unique index subscriptions_door_key on deed.subscriptions (topic) where door;

do $$
declare
  v_table text;
begin
  foreach v_table in array array['contracts', 'purges', 'redrives'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I to deed_worker using (true) with check (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I to deed_admin using (true) with check (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;

create policy contracts_app on deed.contracts for select to deed_app using (true);
grant select on deed.contracts to deed_app;
grant insert on deed.purges to deed_worker, deed_admin;

-- What the doors have delivered, a row a message: the finished half of the faces'
-- relations. Receipts have no tenant, so this is read with the owner's rights and
-- holds the reader to the tenant itself; the barrier keeps a reader's own
-- functions from looking at rows before that.
create view deed.finished with (security_barrier = true) as
select r.subscription, l.id, l.slot, l.tenant_id, l.topic, l.key, l.aggregate_type, l.content_type, l.payload,
  l.created_at, l.process_after, coalesce(r.attempts[i.n], 0) as attempts, r.claimed_at, r.worker, r.finished_at
from deed.receipts r
join deed.subscriptions s on s.id = r.subscription and s.door
cross join lateral unnest(r.ids) with ordinality i(id, n)
join deed.log l on l.id = i.id
where r.outcome = 'delivered'
  and (
    (select pg_has_role(current_user, 'deed_worker', 'usage') or pg_has_role(current_user, 'deed_admin', 'usage'))
    or l.tenant_id = (
      select coalesce(
        nullif(current_setting('app.current_tenant_id', true), '')::uuid,
        case when s.single_tenant then '00000000-0000-0000-0000-000000000000'::uuid end
      )
      from deed.settings s
    )
  );
grant select on deed.finished to deed_app, deed_worker, deed_admin;

