-- deed.serve_external: say that a worker of steps of kind external serves its queue (external:NAME), for a minute from now on, unless that was said
-- in the last 20 seconds (deed.serve_queues). It says so by what it calls: deed.claim_external, and while it has no room for another step
-- deed.extend_external. A row that somebody has locked is not waited for; two of a name wait for each other the first time alone.
create or replace function deed.serve_external(
  p_queue  text,
  p_worker text
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set jit = off
as $$
declare
  v_instance uuid := md5(jsonb_build_array(p_queue, p_worker)::text)::uuid; -- a name may have whatever would stand between them
begin
  if exists (select from deed.run_workers w where w.instance = v_instance and w.seen_until > clock_timestamp() + interval '40 seconds') then
    return;
  end if;
  perform from deed.run_workers w where w.instance = v_instance for update skip locked;
  if found or not exists (select from deed.run_workers w where w.instance = v_instance) then
    perform deed.serve_queues(p_worker, v_instance, array[p_queue], interval '1 minute');
  end if;
end
$$;
