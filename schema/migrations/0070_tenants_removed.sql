-- breaking: no
-- A tenant can be removed (seed 002's cascade).

-- One row for each tenant that was removed, for ever: its id is never used again. made_by
-- asked for it; whoever may still write for the tenant has a transaction id below upto,
-- of the cluster system_identifier. deed.remove_tenant_step goes from one kind of rows to
-- the next (stage), and of some is at_sub and at_id far; a pass is the last if it is whole
-- (is_final: it began when all below upto had ended). Its messages are taken out of the
-- log after the window read_window, which shows all of them: from there on deed.verify
-- counts what lanes have gone past. taken are the rows that went, by table.
create table deed.tenant_removals (
  tenant_id         uuid        not null,
  name              text        not null,
  actor             text        not null,
  reason            text        not null,
  asked_at          timestamptz not null default clock_timestamp(),
  made_by           xid8        not null,
  upto              xid8,
  system_identifier bigint,
  stage             int         not null default 0,
  is_final          boolean     not null default false,
  at_sub            int         not null default -1,
  at_id             bigint      not null default 0,
  left_some         boolean     not null default false,
  waits             boolean     not null default false,
  read_window       bigint,
  taken             jsonb       not null default '{}',
  finished_at       timestamptz,
  constraint tenant_removals_pkey primary key (tenant_id),
  constraint tenant_removals_stage_is_count check (stage >= 0),
  constraint tenant_removals_actor_is_short check (length(actor) between 1 and 200),
  constraint tenant_removals_reason_is_short check (length(reason) between 1 and 2000)
);
create index tenant_removals_open_idx on deed.tenant_removals (tenant_id) where finished_at is null;
create index tenant_removals_asked_idx on deed.tenant_removals (asked_at, tenant_id);

-- Logins whose last tenant was removed: they see nobody's rows until somebody binds them
-- to a tenant, or to none.
create table deed.shut_logins (
  login   text        not null,
  shut_at timestamptz not null default clock_timestamp(),
  constraint shut_logins_pkey primary key (login),
  constraint shut_logins_login_is_short check (length(login) between 1 and 63)
);

do $$
declare
  v_table text;
begin
  foreach v_table in array array['tenant_removals', 'shut_logins'] loop
    execute format('alter table deed.%I enable row level security', v_table);
    execute format('alter table deed.%I force row level security', v_table);
    execute format('create policy %I on deed.%I to current_user using (true) with check (true)', v_table || '_owner', v_table);
    execute format('create policy %I on deed.%I for select to deed_worker using (true)', v_table || '_worker', v_table);
    execute format('create policy %I on deed.%I for select to deed_admin using (true)', v_table || '_admin', v_table);
    execute format('grant select on deed.%I to deed_worker, deed_admin', v_table);
  end loop;
end
$$;

-- Whether any tenant was removed: publishers look no further where none is.
alter table deed.settings add column removed_tenants boolean not null default false;

-- So that each contact that goes finds what names it.
create index contact_merges_from_idx on deed.contact_merges (from_id);
create index identity_conflicts_tenant_idx on deed.identity_conflicts (tenant_id);
