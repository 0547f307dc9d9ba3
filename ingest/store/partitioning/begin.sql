-- Creates an empty copy of `orders`, and a trigger that repeats every change there.
DO $$
DECLARE
    parts   integer := {partitions};
    names   text;
    changes text;
BEGIN
    -- Writers have finished then, and the next ones use the trigger.
    LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE;

    EXECUTE 'CREATE TABLE orders_copy (LIKE orders INCLUDING ALL)'
        || CASE WHEN parts > 1 THEN ' PARTITION BY HASH (source, order_id)' ELSE '' END;
    IF parts > 1 THEN
        FOR part IN 0 .. parts - 1 LOOP
            EXECUTE format(
                'CREATE TABLE orders_copy_%s PARTITION OF orders_copy FOR VALUES WITH (MODULUS %s, REMAINDER %s)',
                part, parts, part);
        END LOOP;
    END IF;

    SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum),
           string_agg(format('%1$I = excluded.%1$I', attname), ', ' ORDER BY attnum)
    INTO names, changes
    FROM pg_attribute
    WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '';

    -- With the rights of its owner, because the roles of writers may not use the copy.
    EXECUTE format(
        'CREATE FUNCTION repeat_in_orders_copy() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
         SET search_path = %I, pg_temp AS $f$
         BEGIN
             IF TG_OP = ''TRUNCATE'' THEN
                 TRUNCATE orders_copy;
                 RETURN NULL;
             END IF;
             IF TG_OP <> ''INSERT'' AND (TG_OP = ''DELETE'' OR (OLD.source, OLD.order_id) <> (NEW.source, NEW.order_id)) THEN
                 DELETE FROM orders_copy WHERE source = OLD.source AND order_id = OLD.order_id;
             END IF;
             IF TG_OP <> ''DELETE'' THEN
                 INSERT INTO orders_copy (%s) VALUES (%s) ON CONFLICT (source, order_id) DO UPDATE SET %s;
             END IF;
             RETURN NULL;
         END $f$',
        current_schema(), names, regexp_replace(names, '(^|, )', '\1NEW.', 'g'), changes);
    REVOKE ALL ON FUNCTION repeat_in_orders_copy() FROM PUBLIC;
    CREATE TRIGGER repeat_in_orders_copy AFTER INSERT OR UPDATE OR DELETE ON orders
        FOR EACH ROW EXECUTE FUNCTION repeat_in_orders_copy();
    CREATE TRIGGER truncate_orders_copy AFTER TRUNCATE ON orders
        FOR EACH STATEMENT EXECUTE FUNCTION repeat_in_orders_copy();
END
$$
