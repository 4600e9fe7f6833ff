-- deed.check_identity: a value by which somebody is known, as such values are
-- compared, or what is wrong with it, in words that do not repeat it.
--
-- email: as deed.check_address has it. phone: E.164, a + with the country's code and
-- 8 to 15 digits, without what people put between them. whatsapp: the same digits
-- without the +. Any other type (external_id, telegram, slack …): after NFKC, in the
-- letters that it has. None may have a character that nobody sees.
create or replace function deed.check_identity(
  p_type      text,
  p_value     text,
  out folded  text,
  out problem text
) returns record
language plpgsql
immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_text text := btrim(p_value, e' \t\r\n');
begin
  if p_type is null or p_type !~ '^[a-z][a-z0-9_]{0,62}$' then
    problem := 'its type is not a name of a to z, 0 to 9 and _, of 1 to 63 characters';
  elsif coalesce(v_text, '') = '' then
    problem := 'it is empty';
  elsif length(v_text) > 500 then
    problem := 'it has over 500 characters';
  elsif p_type = 'email' then
    select a.folded, a.problem into folded, problem from deed.check_address('email', v_text) a;
  elsif p_type in ('phone', 'whatsapp') then
    select a.folded, a.problem into folded, problem from deed.check_address('sms', v_text) a;
    if p_type = 'whatsapp' then
      folded := '+' || ltrim(folded, '+');
    end if;
    if folded !~ e'^\\+[1-9][0-9]{7,14}$' then
      folded := null;
      problem := 'it is not a number in E.164: a + with the country''s code, and 8 to 15 digits';
    elsif p_type = 'whatsapp' then
      folded := ltrim(folded, '+');
    end if;
  elsif deed.has_invisible(v_text) then
    problem := 'it has a character that nobody sees, or a space that is none of ASCII';
  else
    folded := normalize(v_text, nfkc);
    if length(folded) > 500 then
      folded := null;
      problem := 'it has over 500 characters, once they are as they are compared';
    end if;
  end if;
end
$$;
