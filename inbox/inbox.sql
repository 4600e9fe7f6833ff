-- The inbox: which messages a consumer has processed. It lives in the
-- consumer's database, which needs nothing else of deed. Safe to run again.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('deed_inbox.install', 0));

create schema if not exists deed_inbox;

create table if not exists deed_inbox.processed (
  consumer   text        not null,
  message_id uuid        not null,
  at         timestamptz not null default clock_timestamp(),
  constraint processed_pkey primary key (consumer, message_id)
);

create index if not exists processed_at_idx on deed_inbox.processed using brin (at);

-- deed_inbox.once: whether the message is new to the consumer. It is from then
-- on, if and only if the caller's transaction commits, not new any more.
--
-- Waits for a transaction that is just processing the same message: it is new
-- if that one rolls back. Under REPEATABLE READ and SERIALIZABLE one that has
-- processed it since the caller's snapshot raises 40001: run the transaction again.
create or replace function deed_inbox.once(
  p_consumer   text,
  p_message_id uuid
) returns boolean
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_message_id is null or coalesce(length(p_consumer), 0) not between 1 and 200 then
    raise exception 'once: a message id and a consumer of 1 to 200 characters are needed' using errcode = 'DDARG';
  end if;
  insert into deed_inbox.processed (consumer, message_id) values (p_consumer, p_message_id) on conflict do nothing;
  return found;
end
$$;

-- deed_inbox.purge: forget what was processed longer ago than the horizon. In
-- batches: returns how many it removed, p_limit meaning that there may be more.
create or replace function deed_inbox.purge(
  p_horizon interval,
  p_limit   int default 5000
) returns int
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count int;
begin
  if p_horizon is null or p_horizon <= interval '0' or p_limit is null or p_limit < 1 then
    raise exception 'purge: the horizon and the limit must be above 0' using errcode = 'DDARG';
  end if;
  delete from deed_inbox.processed p
  where p.ctid = any (array(
    select o.ctid from deed_inbox.processed o
    where o.at < clock_timestamp() - p_horizon
    limit p_limit
    for update skip locked
  ));
  get diagnostics v_count = row_count;
  return v_count;
end
$$;

revoke all on schema deed_inbox from public;
revoke all on all functions in schema deed_inbox from public;
