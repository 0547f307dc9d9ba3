package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	fast "github.com/goccy/go-json"
	"github.com/govalues/decimal"
)

// codec decodes documents and encodes lines, with the standard library or, depending on BENCH_JSON, with go-json.
var codec = struct {
	decode func(document []byte, into any) error
	encode func(value any) ([]byte, error)
}{json.Unmarshal, json.Marshal}

func init() {
	if os.Getenv("BENCH_JSON") == "go-json" {
		codec.decode = func(document []byte, into any) error { return fast.Unmarshal(document, into) }
		codec.encode = func(value any) ([]byte, error) {
			return fast.MarshalWithOption(value, fast.DisableHTMLEscape())
		}
	}
}

// An order in the format of the external API, with exact amounts.
type order struct {
	ID         string          `json:"id"`
	Status     string          `json:"status"`
	Currency   string          `json:"currency"`
	PlacedAt   time.Time       `json:"placed_at"`
	UpdatedAt  *time.Time      `json:"updated_at"`
	CustomerID *string         `json:"customer_id"`
	Country    *string         `json:"country"`
	Lines      []line          `json:"lines"`
	Attributes json.RawMessage `json:"attributes"`
}

type line struct {
	SKU         string          `json:"sku"`
	Quantity    int64           `json:"quantity"`
	UnitPrice   decimal.Decimal `json:"unit_price"`
	Description *string         `json:"description"`
}

// A row is an order with the times of its delivery, ready to be stored.
type row struct {
	order      order
	total      decimal.Decimal
	lines      string
	attributes string
	entryID    string
	askedAt    time.Time
	addedAt    float64
}

func newRow(of entry, askedAt time.Time, document []byte) (row, error) {
	made := row{entryID: of.id, askedAt: askedAt, attributes: "{}"}
	var err error
	if made.addedAt, err = of.addedAt(); err != nil {
		return row{}, err
	}
	if err := codec.decode(document, &made.order); err != nil {
		return row{}, fmt.Errorf("order %s: %w", of.orderID, err)
	}
	if made.order.ID != of.orderID {
		return row{}, fmt.Errorf("order %s: the document is of another order", of.orderID)
	}
	if made.total, err = total(made.order.Lines); err != nil {
		return row{}, fmt.Errorf("order %s: %w", of.orderID, err)
	}
	lines, err := codec.encode(made.order.Lines)
	if err != nil {
		return row{}, err
	}
	made.lines = string(lines)
	if made.order.Attributes != nil {
		made.attributes = string(made.order.Attributes)
	}
	return made, nil
}

// total is the exact sum of quantity times unit price over all lines.
func total(lines []line) (decimal.Decimal, error) {
	var sum decimal.Decimal
	for index := range lines {
		quantity, err := decimal.New(lines[index].Quantity, 0)
		if err != nil {
			return sum, err
		}
		if sum, err = sum.AddMulExact(lines[index].UnitPrice, quantity, 0); err != nil {
			return sum, err
		}
	}
	return sum, nil
}
