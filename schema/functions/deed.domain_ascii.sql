-- deed.domain_ascii: a domain that is folded already, as A-labels; null for what
-- cannot be one.
--
-- Underscores may stand where the name service has them. A label that is given
-- as xn-- must be what this function would make of its letters. What it leaves
-- to registries: which letters may stand together.
create or replace function deed.domain_ascii(
  p_domain text
) returns text
language plpgsql
immutable strict parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  v_label  text;
  v_text   text;
  v_labels text[] := '{}';
begin
  -- U+3002 is a full stop; NFKC has made the other ones of it or of the ASCII one.
  foreach v_label in array string_to_array(translate(p_domain, e'\u3002', '.'), '.') loop
    if v_label ~ e'[^\\x01-\\x7f]' then
      if v_label ~ e'[\\x01-\\x2c\\x2e\\x2f\\x3a-\\x60\\x7b-\\x7f]' or v_label ~ '^(-|..--)|-$' then
        return null;
      end if;
      v_label := 'xn--' || deed.punycode(v_label);
    elsif v_label ~ '^xn--' then
      v_text := deed.unpunycode(substr(v_label, 5));
      if v_text is null or v_text !~ e'[^\\x01-\\x7f]' or deed.has_invisible(v_text) or deed.fold_case(v_text) is distinct from v_text
        or 'xn--' || deed.punycode(v_text) is distinct from v_label
      then
        return null;
      end if;
    end if;
    if coalesce(v_label !~ '^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?$' or length(v_label) > 63, true) then
      return null;
    end if;
    v_labels := v_labels || v_label;
  end loop;
  v_text := array_to_string(v_labels, '.');
  return case when length(v_text) between 1 and 253 then v_text end;
end
$$;
