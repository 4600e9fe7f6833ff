-- deed.variants_problem: what is wrong with the options variants and test of a campaign's run;
-- null, nothing. Whether the contents are there is another question (deed.said_by).
create or replace function deed.variants_problem(p_options jsonb) returns text
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
declare
  v_test jsonb := p_options -> 'test';
begin
  if not p_options ?| '{variants,test}' then
    return null;
  elsif jsonb_typeof(p_options -> 'variants') is distinct from 'object' or (select count(*) from jsonb_object_keys(p_options -> 'variants')) not between 2 and 10
    or exists (select from jsonb_each(p_options -> 'variants') e where length(e.key) not between 1 and 100 or jsonb_typeof(e.value) <> 'string')
  then
    return 'variants are an object of two to ten names of 1 to 100 characters, each with the id of a content; a test is of variants';
  elsif p_options ? 'content' then
    return 'a run has one content or variants, and not both';
  elsif v_test is null then
    return null;
  elsif jsonb_typeof(v_test) <> 'object' or exists (select from jsonb_object_keys(v_test) k where k not in ('share', 'wait', 'by')) then
    return 'test is an object of share, wait and by';
  elsif (jsonb_typeof(v_test -> 'share') = 'number' and (v_test ->> 'share')::numeric between 0.0001 and 0.99) is not true then
    return 'the share of a test is the part of the audience that takes part in it, from 0.0001 to 0.99';
  elsif (v_test ->> 'by' in ('clicks', 'complaints', 'person')) is not true then
    return 'a test is decided by clicks, complaints or person';
  elsif (v_test ->> 'by' = 'person') = (v_test ? 'wait') then
    return 'wait is how long clicks or complaints are waited for, and does not go with by person';
  elsif p_options ? 'at' then
    return 'a test is decided at one instant for all, and cannot begin at each one''s own time: give scheduled_for';
  elsif v_test ? 'wait' and ((v_test ->> 'wait')::interval between interval '1 minute' and interval '30 days') is not true then
    return 'the wait of a test must be an interval from 1 minute to 30 days';
  end if;
  return null;
exception when data_exception then
  return 'the wait of a test must be an interval from 1 minute to 30 days';
end
$$;
