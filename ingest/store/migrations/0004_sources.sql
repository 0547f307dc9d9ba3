-- compatible with: 3
-- statement by statement
ALTER TABLE audit_log ADD COLUMN IF NOT EXISTS source text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE erased_orders ADD COLUMN IF NOT EXISTS source text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE orders ADD COLUMN IF NOT EXISTS source text COLLATE "C" NOT NULL DEFAULT '';

COMMENT ON COLUMN audit_log.source IS 'The source whose orders were changed. Empty for the unnamed source.';
COMMENT ON COLUMN erased_orders.source IS 'The source of the order. Empty for the unnamed source.';
COMMENT ON COLUMN orders.source IS 'The source of the order. Empty for the unnamed source.';

-- A new column at the end keeps the view and its privileges.
CREATE OR REPLACE VIEW order_lines AS
SELECT o.order_id,
       l.line_no::integer AS line_no,
       l.line ->> 'sku' AS sku,
       l.line ->> 'description' AS description,
       (l.line ->> 'quantity')::numeric AS quantity,
       (l.line ->> 'unit_price')::numeric AS unit_price,
       (l.line ->> 'quantity')::numeric * (l.line ->> 'unit_price')::numeric AS amount,
       o.source
FROM orders AS o
CROSS JOIN LATERAL jsonb_array_elements(o.lines) WITH ORDINALITY AS l (line, line_no);

-- An interrupted statement leaves an invalid index behind.
DROP INDEX CONCURRENTLY IF EXISTS erased_orders_source_order_id;
CREATE UNIQUE INDEX CONCURRENTLY erased_orders_source_order_id ON erased_orders (source, order_id);
DROP INDEX CONCURRENTLY IF EXISTS orders_source_order_id;
CREATE UNIQUE INDEX CONCURRENTLY orders_source_order_id ON orders (source, order_id);
