-- breaking: no
-- What 0075 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
alter table deed.delivery_attempts validate constraint delivery_attempts_outcome_is_known;
