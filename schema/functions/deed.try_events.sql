-- deed.try_events: record events of deliveries (deed.apply_events), and wait for nobody longer
-- than p_wait, and half a second more. What somebody else has locked for so long, as an erasure that is
-- left open has, holds up the events of no other delivery: those are recorded, and its own are
-- not. Returns what the log says of those that were proved, and those of which nothing was recorded.
create or replace function deed.try_events(
  p_ids         uuid[],
  p_events      text[],
  p_event_ids   text[],
  p_message_ids text[],
  p_addresses   text[],
  p_ats         timestamptz[],
  p_reasons     text[],
  p_codes       text[],
  p_actor       text,
  p_wait        interval,
  out told      jsonb,
  out busy      uuid[]
) returns record
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_before text := current_setting('lock_timeout');
  v_wait   int := greatest(1, extract(epoch from p_wait) * 1000);
  v_id     uuid;
  v_told   jsonb;
begin
  told := '[]';
  busy := '{}';
  begin
    perform set_config('lock_timeout', v_wait::text, true);
    told := deed.apply_events(p_ids, p_events, p_event_ids, p_message_ids, p_addresses, p_ats, p_reasons, p_codes, p_actor);
  exception when lock_not_available then
    -- It may be anything that they write, such as a suppression: each delivery by itself tells.
    for v_id in select distinct u.id from unnest(p_ids) u(id) where u.id is not null order by u.id loop
      begin
        perform set_config('lock_timeout', case when cardinality(busy) < 10 then least(v_wait, 50) else 1 end::text, true);
        select deed.apply_events(array_agg(u.id order by u.n), array_agg(u.event order by u.n), array_agg(u.event_id order by u.n), array_agg(u.message_id order by u.n),
          array_agg(u.address order by u.n), array_agg(u.at order by u.n), array_agg(u.reason order by u.n), array_agg(u.code order by u.n), p_actor)
        into v_told
        from unnest(p_ids, p_events, p_event_ids, p_message_ids, p_addresses, p_ats, p_reasons, p_codes) with ordinality u(id, event, event_id, message_id, address, at, reason, code, n)
        where u.id = v_id;
        told := told || v_told;
      exception when lock_not_available then
        busy := busy || v_id;
      end;
    end loop;
  end;
  perform set_config('lock_timeout', v_before, true);
end
$$;
