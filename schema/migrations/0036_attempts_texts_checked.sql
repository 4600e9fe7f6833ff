-- breaking: no
-- What 0035 left to be looked at.
alter table deed.delivery_attempts validate constraint delivery_attempts_texts_are_short;
