-- breaking: no
-- What 0086 left to be looked at, which keeps nobody from the table; nothing where a version of before has looked.
alter table deed.delivery_feedback validate constraint delivery_feedback_bounce_is_whole;
