-- deed.publish_problems: what is wrong with messages that are to be published.
--
-- No row: nothing. Reads deed.settings and deed.topics. code is the SQLSTATE
-- that deed.publish_many raises.
create or replace function deed.publish_problems(
  p_topics           text[],
  p_payloads         bytea[],
  p_keys             text[],
  p_types            text[],
  p_content_types    text[],
  p_headers          jsonb[],
  p_idempotency_keys text[]
) returns table (ordinal int, code text, problem text)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
  v_max      int;
  v_strict   boolean;
  v_declared text[];
  v_own      text[];
  v_invalid  boolean := false;
  v_excess   text;
  v_row      record;
begin
  select s.max_payload, s.strict_topics, array(select t.topic from deed.topics t where t.topic = any (p_topics)),
    array(select t.topic from deed.topics t where t.topic = any (p_topics) and t.own)
  into v_max, v_strict, v_declared, v_own
  from deed.settings s;

  return query
  select f.ordinal, f.code, f.problem
  from (
    select u.ordinal,
      case when u.undeclared and v_strict and not u.own then 'DDNFD' else 'DDARG' end as code,
      case
        when u.topic is null or u.topic = '' then 'topic is empty'
        when u.undeclared and u.topic !~ '^[A-Za-z0-9._:/-]{1,200}$' -- costly, and a declared name has been checked
          then format('topic %s must be 1 to 200 characters of A-Z a-z 0-9 . _ : / -', quote_literal(left(u.topic, 60)))
        when u.own then format('topic %s is not for you to publish to: names from deed. on are of what deed itself publishes; take another', quote_literal(left(u.topic, 60)))
        when u.undeclared and v_strict then format('topic %s is not declared, and this installation takes declared topics only; declare it in deed.yaml', quote_literal(u.topic))
        when u.payload is null then 'payload is null'
        when octet_length(u.payload) > v_max
          then format('payload of %s bytes is over the limit of %s', octet_length(u.payload), v_max)
        when octet_length(u.key) > 1000 then format('key of %s bytes is over the limit of 1000', octet_length(u.key))
        when octet_length(u.type) > 200 then format('type of %s bytes is over the limit of 200', octet_length(u.type))
        when u.content_type !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+/[ -~]{1,150}$'
          then format('content type %s is not a media type', quote_literal(left(u.content_type, 60)))
        when octet_length(u.idempotency_key) not between 1 and 200
          then format('idempotency key of %s bytes must have 1 to 200', octet_length(u.idempotency_key))
        when u.headers is not null and jsonb_typeof(u.headers) <> 'object' then 'headers are not a JSON object'
        when pg_column_size(u.headers) > 65536 then format('headers of %s bytes are over the limit of 65536', pg_column_size(u.headers))
        when u.headers is not null then (
          select format('header %s %s', quote_literal(left(h.name, 60)), case
              when h.name !~ '^[!#$%&''*+.^_`|~0-9a-z-]{1,200}$'
                then 'is not a name that every sink can carry: use lower-case letters, digits and - . _'
              when h.name ~ '^(deed|webhook)-' then 'is reserved: names from deed- and webhook- on are deed''s own'
              when jsonb_typeof(h.value) <> 'string' then 'is not a string'
              else 'has a value that HTTP cannot carry (control characters, or over 8192 bytes)'
            end)
          from jsonb_each(u.headers) h(name, value)
          where deed.is_bad_header(h.name, h.value)
          order by h.name
          limit 1
        )
      end as problem
    from (
      -- By number: unnest would write each of the arrays down first.
      select n as ordinal, p_topics[n] as topic, p_payloads[n] as payload, p_keys[n] as key, p_types[n] as type,
        p_content_types[n] as content_type, p_headers[n] as headers, p_idempotency_keys[n] as idempotency_key,
        p_topics[n] <> all (v_declared) as undeclared,
        p_topics[n] = any (v_own) or (starts_with(p_topics[n], 'deed.') and p_topics[n] <> all (v_declared)) as own
      from generate_series(1, cardinality(p_topics)) n
    ) u
  ) f
  where f.problem is not null
  order by f.ordinal
  limit 20;

  -- One subtransaction for the whole batch; the search for the culprit is only
  -- made when there is one. jsonb and not json: what jsonb cannot hold (\u0000)
  -- could never be read through the published relations.
  begin
    select min(case when octet_length(p_payloads[n]) > 1024 then deed.json_excess(p_payloads[n]) end) into v_excess
    from generate_series(1, cardinality(p_topics)) n
    where (p_content_types[n] is null or deed.is_json(p_content_types[n])) and convert_from(p_payloads[n], 'UTF8')::jsonb is not null;
  exception when data_exception or program_limit_exceeded then
    v_invalid := true;
  end;
  if not v_invalid and v_excess is null then
    return;
  end if;

  for v_row in
    select p_payloads[n] as payload, n as ordinal
    from generate_series(1, cardinality(p_topics)) n
    where deed.is_json(p_content_types[n])
  loop
    begin
      v_excess := case when octet_length(v_row.payload) > 1024 then deed.json_excess(v_row.payload) end;
      if v_excess is null then
        perform convert_from(v_row.payload, 'UTF8')::jsonb;
      else
        ordinal := v_row.ordinal;
        code := 'DDARG';
        problem := 'payload has ' || v_excess;
        return next;
      end if;
    exception when data_exception or program_limit_exceeded then
      ordinal := v_row.ordinal;
      code := 'DDARG';
      problem := format('payload is not valid JSON (%s); give another content type if it is not meant to be', sqlerrm);
      return next;
    end;
  end loop;
end
$$;
