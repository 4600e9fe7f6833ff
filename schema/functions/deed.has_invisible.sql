-- deed.has_invisible: whether a text has a character that nobody sees, or that
-- only looks like a space: control characters, soft hyphens, zero-width and
-- bidirectional ones, fillers, variation selectors, tags, and every space but
-- that of ASCII.
create or replace function deed.has_invisible(
  p_text text
) returns boolean
language sql
immutable parallel safe
return p_text ~ (e'[\\x01-\\x1f\\x7f-\\xa0\\xad\\u034f\\u061c\\u115f\\u1160\\u1680\\u17b4\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f'
  || e'\\u2800\\u3000\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\uffff\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff]');
