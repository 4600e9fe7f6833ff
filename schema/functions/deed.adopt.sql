-- deed.adopt: move some undelivered rows of an adopted table into the log.
--
-- The table is the one that deed.contracts names for the pack. Oldest first,
-- under the row's topic, or the name that --topic gives it, tenant, time and number of attempts; its id travels in
-- the header outbox-id. A row that a worker had claimed is due when those five
-- minutes are over. Rows leave the table in the transaction that publishes them.
-- Those of a tenant that was removed meanwhile stay. Columns that the table lacks
-- count as null. Returns how many rows it moved; fewer than p_limit: all are.
create or replace function deed.adopt(
  p_pack  text,
  p_limit int default 500
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_table  regclass;
  v_topics jsonb;
  v_open   text;
  v_order  text;
  v_places tid[];
  v_rows   jsonb[];
  v_row    jsonb;
  v_gone   text[] := array(select r.tenant_id::text from deed.tenant_removals r);
  v_tenant text := current_setting('app.current_tenant_id', true);
  v_id     bigint;
  v_after  timestamptz;
begin
  select c.adopting::regclass, c.adopting_topics into v_table, v_topics from deed.contracts c where c.pack = p_pack for update;
  if v_table is null then
    return 0;
  end if;
  v_open := case p_pack when 'app' then 'delivered_at' else 'processed_at' end;
  v_order := case p_pack when 'app' then 'created_at, id' else 'id' end;

  -- The table's own row-level security must hide nothing: then this raises.
  perform set_config('row_security', 'off', true);
  execute format(
    'select array('
    || 'select ctid from %1$s t where %2$I is null and ($2 = ''{}'' or (lower(to_jsonb(t) ->> ''tenant_id'') = any ($2)) is not true) '
    || 'order by %3$s limit $1 for update)',
    v_table, v_open, v_order
  ) into v_places using p_limit, v_gone;
  -- In a statement of its own, which sees them as they were locked.
  execute format(
    'with moved as (delete from %1$s t where t.ctid = any ($1) returning t.*) '
    || 'select array_agg(to_jsonb(m) order by %2$s) from moved m',
    v_table, v_order
  ) into v_rows using v_places;
  perform set_config('row_security', 'on', true);

  foreach v_row in array coalesce(v_rows, '{}') loop
    v_after := (v_row ->> 'process_after')::timestamptz;
    if v_row ->> 'claimed_at' is not null then
      v_after := greatest(v_after, (v_row ->> 'claimed_at')::timestamptz + interval '5 minutes');
    elsif v_row ->> 'processing_token' is not null then
      v_after := greatest(v_after, clock_timestamp() + interval '5 minutes');
    end if;
    -- Its tenant publishes it: the owner crosses no tenants by publishing.
    perform set_config(
      'app.current_tenant_id', coalesce(v_row ->> 'tenant_id', '00000000-0000-0000-0000-000000000000'), true
    );
    select p.id into v_id
    from deed.publish_many(
      array[coalesce(v_topics ->> coalesce(v_row ->> 'topic', v_row ->> 'event_type'), v_row ->> 'topic', v_row ->> 'event_type')],
      array[convert_to((v_row -> 'payload')::text, 'UTF8')],
      p_keys => array[v_row ->> 'aggregate_id'],
      p_headers => array[jsonb_build_object('outbox-id', v_row ->> 'id')],
      p_process_after => array[v_after],
      p_created_at => array[(v_row ->> 'created_at')::timestamptz],
      p_aggregate_types => array[v_row ->> 'aggregate_type']
    ) p;
    update deed.pending p
    set attempts = coalesce((v_row ->> 'attempts')::int, (v_row ->> 'retry_count')::int)
    from deed.subscriptions s
    where p.subscription = s.id and p.id = v_id
      and coalesce((v_row ->> 'attempts')::int, (v_row ->> 'retry_count')::int, 0) > 0;
  end loop;
  perform set_config('app.current_tenant_id', coalesce(v_tenant, ''), true);
  if cardinality(v_places) < p_limit then
    update deed.contracts c set adopting = null, adopting_topics = null where c.pack = p_pack;
  end if;
  return coalesce(cardinality(v_rows), 0);
end
$$;
