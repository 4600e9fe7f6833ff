-- deed.check_address: an address of a channel as it is compared, or what is wrong
-- with it, in words that do not repeat it.
--
-- After NFKC, without regard to case, without ASCII white space around it. An
-- e-mail's domain and a webhook's host are A-labels. email: local@domain and no
-- more; a local part in quotes has another form without them, and is refused.
-- sms, voice, whatsapp: digits, after a + or not, without what people put
-- between them; the (0) of a national form is refused, since it is not dialled
-- after a country's code. chat: what begins with + and a digit is such a number, in
-- E.164, without the +, as WhatsApp has it; a name or an id of another messenger begins
-- otherwise; a topic of a person's chat in Telegram (12345/7) is that person. webhook: an http or https URL, without its user and the port
-- that its scheme means. Any other kind: what is left. No address may have a
-- character that nobody sees.
create or replace function deed.check_address(
  p_channel   text,
  p_address   text,
  out folded  text,
  out problem text
) returns record
language plpgsql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_text  text := btrim(p_address, e' \t\r\n');
  v_parts text[];
begin
  if coalesce(v_text, '') = '' then
    problem := 'it is empty';
    return;
  elsif length(v_text) > 2000 then
    problem := 'it has over 2000 characters';
    return;
  elsif deed.has_invisible(v_text) then
    problem := 'it has a character that nobody sees, or a space that is none of ASCII';
    return;
  end if;
  v_text := deed.fold_case(v_text);
  if v_text is null then
    problem := 'this server, without ICU and in a locale that knows ASCII alone, cannot tell its capital letters';
    return;
  end if;

  if p_channel = 'email' then
    v_parts := regexp_match(v_text, '^([^@]+)@([^@]+)$');
    if v_text ~ '[<>"(),:; ]' and v_text !~ e'@\\[[^@]*\\]$' then
      problem := 'it is more than local@domain: leave out names, quotes and comments';
    elsif v_parts is null or v_parts[1] ~ e'[\\x01-\\x20"(),:;<>[\\]\\\\\\x7f]|^\\.|\\.$|\\.\\.' or length(v_text) > 320 then
      problem := 'it is not of the form local@domain';
    elsif v_parts[2] ~ e'^\\[(ipv6:[0-9a-f:.]+|[0-9.]+)\\]$' then
      folded := v_text;
    else
      folded := v_parts[1] || '@' || deed.domain_ascii(v_parts[2]);
      problem := case when folded is null then 'its domain is none' end;
    end if;
  elsif p_channel = 'chat' and v_text ~ e'^\\+[ (]*[0-9]' then
    select a.folded, a.problem into folded, problem from deed.check_address('whatsapp', v_text) a;
    if folded !~ e'^\\+[1-9][0-9]{7,14}$' then
      problem := 'it is not a number in E.164: a + with the country''s code, and 8 to 15 digits';
    end if;
    folded := case when problem is null then ltrim(folded, '+') end;
  elsif p_channel = 'chat' and v_text ~ '^[1-9][0-9]*/[0-9]+$' then
    folded := split_part(v_text, '/', 1);
  elsif p_channel in ('sms', 'voice', 'whatsapp') and v_text ~ e'^\\+.*\\(\\s*0\\s*\\)' then
    problem := 'it has the (0) of the national form after a country''s code: leave it out';
  elsif p_channel in ('sms', 'voice', 'whatsapp') then
    folded := substring(regexp_replace(v_text, e'[ ()./\\-\\u2010-\\u2015\\u2212]', '', 'g') from e'^\\+?[0-9]{2,20}$');
    problem := case when folded is null then 'it is not a number: digits, after + and the country''s code' end;
  elsif p_channel = 'webhook' then
    v_parts := regexp_match(v_text, e'^(https?)://(?:[^@/?#]*@)?(\\[[0-9a-f:.]+\\]|[^/?#:@[\\]]+)(?::([0-9]{1,5}))?([/?#][^ ]*)?$');
    if v_parts[2] !~ e'^\\[' then
      v_parts[2] := deed.domain_ascii(regexp_replace(v_parts[2], e'\\.$', ''));
    end if;
    folded := v_parts[1] || '://' || v_parts[2] || case
        when v_parts[3] is null or (v_parts[1], v_parts[3]) in (('http', '80'), ('https', '443')) then ''
        else ':' || v_parts[3] end
      || coalesce(v_parts[4], '/');
    problem := case when folded is null then 'it is not an http or https URL of a host' end;
  else
    folded := v_text;
  end if;
end
$$;
