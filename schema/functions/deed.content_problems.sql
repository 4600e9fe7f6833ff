-- deed.content_problems: what contents lack for a channel, each by its precondition's name
-- (C8): no_content, no_unsubscribe_url: each part of an e-mail is read by somebody who does not see the other.
create or replace function deed.content_problems(
  p_contents uuid[],
  p_channel  text,
  p_purpose  text
) returns text[]
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(p.name || ': ' || case when c.variant <> '' and cardinality(p_contents) > 1 then 'variant ' || c.variant || ': ' else '' end || p.what order by u.n, p.n), '{}')
  from unnest(p_contents) with ordinality u(id, n)
  join deed.campaign_contents c on c.id = u.id
  cross join lateral (
    -- Where no {{ }} writes it, or an assign keeps it, outside of comments and of raw, which writes out the braces. All of a pattern is greedy, or nothing is.
    select string_agg('its ' || part.name, ' and ' order by part.n) as without
    from (values (1, 'text', c.text, c.text), (2, 'html', c.html, regexp_replace(c.html, '<!--.*?(?:-->|$)', '', 'g'))) part(n, name, body, bare)
    where part.body <> ''
      and regexp_replace(part.bare, e'[{]%-??\\s*?(?:comment\\s*?-??%[}].*?(?:[{]%-??\\s*?endcomment\\s*?-??%[}]|$)|raw\\s*?-??%[}].*?(?:[{]%-??\\s*?endraw\\s*?-??%[}]|$))', '', 'g')
        !~ e'[{]([{]|%-?\\s*assign\\s)([^{}]*[^{}.\\w])?unsubscribe_url\\M'
  ) leave
  cross join lateral (values
    (1, 'no_content', case
      when p_channel = 'email' and (coalesce(c.subject, '') = '' or coalesce(nullif(c.text, ''), c.html, '') = '') then 'an e-mail needs a subject, and text or html'
      when p_channel = 'voice' and (coalesce(c.script, '') = '' or c.script_version is null) then 'a call needs a script and its script_version'
      when p_channel = 'social' and (coalesce(c.text, '') = '' or c.post_id is null) then 'a post needs a text and its id (post)'
      when p_channel in ('sms', 'chat') and coalesce(c.text, '') = '' then 'a message needs a text'
    end),
    (2, 'no_unsubscribe_url', case when p_channel = 'email' and p_purpose is not null
      then 'what has a purpose must offer a way to leave it; write {{ unsubscribe_url }} in ' || leave.without end)
  ) p(n, name, what)
  where p.what is not null
$$;
