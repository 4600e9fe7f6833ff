-- deed.register_functions: have runs of Go functions be started, for all tenants: each body is a plan in its
-- canonical form, of one step of kind go, whose version is a number. For workers, when they start.
--
-- The same again changes nothing. A version never changes: other bytes under the same name and
-- version raise DDCON. Raises DDARG.
create or replace function deed.register_functions(
  p_bodies bytea[]
) returns void
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  v_body    bytea;
  v_plan    json;
  v_name    text;
  v_version int;
  v_first   bytea;
begin
  foreach v_body in array p_bodies loop
    begin
      v_plan := convert_from(v_body, 'UTF8')::json;
      v_name := v_plan ->> 'plan';
      v_version := (v_plan ->> 'version')::int;
      if (select count(*) filter (where g.kind = 'go') = 1 and count(*) = 1 from deed.plan_graph(v_body) g) is not true
        or v_version::text is distinct from v_plan ->> 'version' or (v_version >= 1 and length(v_name) between 1 and 100 and octet_length(v_body) <= 4096) is not true
      then
        raise exception 'register_functions: a function is a plan of one step, of kind go, whose version is a number from 1' using errcode = 'DDARG';
      end if;
    exception when data_exception then
      raise exception 'register_functions: the plan is not in its canonical form: %', sqlerrm using errcode = 'DDARG';
    end;
    insert into deed.run_functions (registered_at, version, function_id, body) values (clock_timestamp(), v_version, v_name, v_body) on conflict do nothing;
    if not found then
      -- A statement of its own: the one above does not show whom it met.
      select f.body into v_first from deed.run_functions f where f.function_id = v_name and f.version = v_version;
      if v_first is distinct from v_body then
        raise exception 'register_functions: version % of function % is registered with other retries, time-out, guarantee or hold', v_version, quote_literal(v_name)
          using errcode = 'DDCON', hint = 'A version never changes: give the function a new one.';
      end if;
    end if;
  end loop;
end
$$;
