-- deed.pause_problem: what is wrong with the option pause_on of a campaign's run; null, nothing.
-- It is such as {"failed": "5%", "complained": "0.3%", "from": 200}: one of the shares at least.
create or replace function deed.pause_problem(p_options jsonb) returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_on    jsonb := p_options -> 'pause_on';
  v_share record;
begin
  if v_on is null then
    return null;
  elsif jsonb_typeof(v_on) <> 'object' then
    return 'pause_on is such as {"failed": "5%", "complained": "0.3%", "from": 200}';
  elsif v_on - '{failed,complained,from}'::text[] <> '{}' then
    return format('pause_on knows failed, complained and from, and not %s', quote_literal(left((select min(k) from jsonb_object_keys(v_on - '{failed,complained,from}'::text[]) k), 60)));
  elsif not v_on ?| '{failed,complained}' then
    return 'pause_on has failed, complained, or both';
  elsif v_on ? 'from' and (jsonb_typeof(v_on -> 'from') = 'number' and v_on ->> 'from' ~ '^[1-9][0-9]{0,8}$') is not true then
    return 'from of pause_on is a number from 1 to 999999999';
  end if;
  for v_share in select k.key, k.value from jsonb_each_text(v_on - 'from') k order by k.key loop
    if v_share.value ~ '^[0-9]{1,2}([.][0-9]{1,4})?%$' is not true or rtrim(v_share.value, '%')::numeric = 0 then
      return format('%s of pause_on is a share over 0%% and below 100%%, such as 5%% or 0.3%%', v_share.key);
    end if;
  end loop;
  return null;
end
$$;
