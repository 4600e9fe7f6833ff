process_after = now() + (POWER(2, LEAST(retry_count, 10)) || ' seconds')::INTERVAL
