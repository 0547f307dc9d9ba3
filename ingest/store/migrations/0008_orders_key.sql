-- compatible with: 4
-- contracts
-- The index is already built, so this only holds its lock for a moment.
ALTER TABLE orders
    DROP CONSTRAINT orders_pkey,
    ADD CONSTRAINT orders_pkey PRIMARY KEY USING INDEX orders_source_order_id;
