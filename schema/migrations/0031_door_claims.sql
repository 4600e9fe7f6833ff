-- breaking: no
-- Which messages were claimed through a face under which token, so that a
-- token finds its own among any number that wait: an index on deed.pending
-- would make every claim, everybody's, an entry in each of its indexes.

-- One row a claim and tenant. It says what was claimed; that it still is, the
-- pending row says. Claims remove those whose lease has run out.
create table deed.door_claims (
  claim      bigint      not null,
  tenant_id  uuid        not null,
  token      uuid        not null,
  claimed_at timestamptz not null,
  ids        bigint[]    not null,
  constraint door_claims_pkey primary key (claim, tenant_id)
);
create index door_claims_token_idx on deed.door_claims (token);

alter table deed.door_claims enable row level security;
alter table deed.door_claims force row level security;
create policy door_claims_owner on deed.door_claims to current_user using (true) with check (true);
create policy door_claims_worker on deed.door_claims for select to deed_worker using (true);
create policy door_claims_admin on deed.door_claims for select to deed_admin using (true);
create policy door_claims_app on deed.door_claims for select to deed_app using (tenant_id = (select deed.current_tenant()));
grant select on deed.door_claims to deed_app, deed_worker, deed_admin;

-- What is claimed while this runs: by the tokens that stand in the rows.
insert into deed.door_claims (claim, tenant_id, token, claimed_at, ids)
select p.claim, p.tenant_id, p.claimed_by::uuid, max(p.claimed_at), array_agg(p.id)
from deed.pending p
join deed.subscriptions s on s.id = p.subscription and s.door
where p.claim is not null
  and p.claimed_by ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$'
group by p.claim, p.tenant_id, p.claimed_by
on conflict do nothing;
