ALTER TABLE orders
    ADD COLUMN attributes jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN document   jsonb;

COMMENT ON COLUMN orders.attributes IS 'Whatever else a mapping or a transform keeps of the order.';
COMMENT ON COLUMN orders.document IS 'The document as fetched or pushed, where INGEST_KEEP_DOCUMENT is on.';

-- A quantity may be fractional. A view's column cannot change its type: the view is created again, with its privileges.
CREATE TEMPORARY TABLE order_lines_privileges ON COMMIT DROP AS
SELECT acl.grantee, acl.privilege_type, acl.is_grantable
FROM pg_class, aclexplode(relacl) AS acl
WHERE pg_class.oid = 'order_lines'::regclass AND acl.grantee <> relowner;

DROP VIEW order_lines;

CREATE VIEW order_lines AS
SELECT o.order_id,
       l.line_no::integer AS line_no,
       l.line ->> 'sku' AS sku,
       l.line ->> 'description' AS description,
       (l.line ->> 'quantity')::numeric AS quantity,
       (l.line ->> 'unit_price')::numeric AS unit_price,
       (l.line ->> 'quantity')::numeric * (l.line ->> 'unit_price')::numeric AS amount
FROM orders AS o
CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l (line, line_no);

DO $$
DECLARE
    privilege record;
BEGIN
    FOR privilege IN SELECT * FROM order_lines_privileges LOOP
        EXECUTE format(
            'GRANT %s ON order_lines TO %s%s',
            privilege.privilege_type,
            CASE WHEN privilege.grantee = 0 THEN 'PUBLIC' ELSE privilege.grantee::regrole::text END,
            CASE WHEN privilege.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END
        );
    END LOOP;
END
$$;
