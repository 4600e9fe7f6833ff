-- deed.tail_window: of the messages with numbers above p_from and up to p_upto those
-- that have committed between two snapshots, by number. All that lies between the
-- numbers is read, by the summaries of the pages (log_pN_id_idx), so the caller
-- bounds them.
create or replace function deed.tail_window(
  p_from    bigint,
  p_upto    bigint,
  p_seen    pg_snapshot,
  p_now     pg_snapshot,
  p_topic   text default null,
  p_payload boolean default false
) returns table (
  id bigint, message_id uuid, tenant_id uuid, topic text, key text, type text, content_type text, headers jsonb, size int, payload bytea,
  created_at timestamptz, process_after timestamptz
)
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_indexscan = off
set jit = off
as $$
  select l.id, deed.message_id(l.created_at, l.id), l.tenant_id, l.topic, coalesce(l.key, ''), coalesce(l.type, ''), l.content_type, l.headers,
    octet_length(l.payload), case when p_payload then l.payload end, l.created_at, l.process_after
  from deed.log l
  where l.id > p_from and l.id <= p_upto
    and pg_visible_in_snapshot(l.xid, p_now) and not pg_visible_in_snapshot(l.xid, p_seen)
    and (p_topic is null or l.topic = p_topic)
  order by l.id
$$;
