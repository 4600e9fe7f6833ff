-- deed.pace_of: how fast a campaign's run goes that is asked for with these options: rate, in
-- deliveries a second, null for no limit, and ramp as deed.rate_limits has it. problem says
-- what is wrong with them; null, nothing.
--
-- The option rate is such as 10/s, 600/min or 5000/h. ramp leads up to it: {"from": "1/s",
-- "every": "1h"} doubles from there on, and [{"rate": "100/h", "for": "24h"}, …] is a table of
-- steps. Its time is that in which the run goes: it stands still while nothing does.
create or replace function deed.pace_of(
  in  p_options jsonb,
  out rate      double precision,
  out ramp      double precision[],
  out problem   text
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  c_rate  constant text := '^[0-9]{1,7}([.][0-9]{1,6})?/(s|min|h)$';
  v_steps jsonb := p_options -> 'ramp';
  v_step  record;
  v_rate  double precision;
  v_time  double precision := 0;
begin
  if p_options ->> 'rate' !~ c_rate then
    problem := 'rate is deliveries a second, a minute or an hour, such as 10/s, 600/min or 5000/h';
    return;
  elsif v_steps is not null and p_options ->> 'rate' is null then
    problem := 'a ramp leads up to a rate, and there is none';
    return;
  elsif jsonb_typeof(v_steps) not in ('object', 'array') or (jsonb_typeof(v_steps) = 'array' and jsonb_array_length(v_steps) not between 1 and 100)
    or exists (select from jsonb_path_query(v_steps, 'lax $[*]') s where jsonb_typeof(s) <> 'object' or (s ->> (case jsonb_typeof(v_steps) when 'object' then 'from' else 'rate' end)) ~ c_rate is not true
      or s - case jsonb_typeof(v_steps) when 'object' then '{from,every}'::text[] else '{rate,for}'::text[] end <> '{}')
  then
    problem := 'ramp is {"from": "1/s", "every": "1h"}, or a list of 1 to 100 steps, each such as {"rate": "100/h", "for": "24h"}';
    return;
  end if;
  rate := split_part(p_options ->> 'rate', '/', 1)::double precision / case split_part(p_options ->> 'rate', '/', 2) when 's' then 1 when 'min' then 60 else 3600 end;
  if rate not between 1e-4 and 1e6 then
    problem := 'rate is from 1/h to 1000000/s';
  end if;
  for v_step in
    select coalesce(s ->> 'from', s ->> 'rate') as rate, coalesce(s ->> 'every', s ->> 'for') as lasts
    from jsonb_path_query(v_steps, 'lax $[*]') s
  loop
    begin
      v_rate := split_part(v_step.rate, '/', 1)::double precision / case split_part(v_step.rate, '/', 2) when 's' then 1 when 'min' then 60 else 3600 end;
      if v_step.lasts::interval between interval '1 second' and interval '90 days' is not true or v_rate not between 1e-4 and 1e6 then
        problem := 'each step of a ramp lasts from 1 second to 90 days, at a rate from 1/h to 1000000/s';
        return;
      end if;
    exception when data_exception then
      problem := 'what a step of a ramp lasts is an interval, such as 24h';
      return;
    end;
    loop
      ramp := ramp || v_time || v_rate;
      v_time := v_time + extract(epoch from v_step.lasts::interval);
      v_rate := v_rate * 2;
      exit when jsonb_typeof(v_steps) = 'array' or v_rate >= rate;
    end loop;
  end loop;
  ramp := ramp || v_time || rate;
end
$$;
