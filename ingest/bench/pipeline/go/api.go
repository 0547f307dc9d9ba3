package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// api fetches orders over persistent HTTP/1.1 connections, one for each order in flight.
type api struct {
	client  *http.Client
	before  string
	after   string
	buffers sync.Pool
}

func newAPI(template, caFile string, inFlight int) (*api, error) {
	before, after, found := strings.Cut(template, "{order_id}")
	if !found {
		return nil, fmt.Errorf("INGEST_UPSTREAM_URL has no {order_id}")
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: inFlight,
		MaxConnsPerHost:     inFlight,
		DisableCompression:  true,
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // no HTTP/2
	}
	if caFile != "" {
		authorities, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("INGEST_UPSTREAM_CA_FILE has no certificate")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	made := &api{client: &http.Client{Transport: transport}, before: before, after: after}
	made.buffers.New = func() any { return new(bytes.Buffer) }
	return made, nil
}

// fetch requests one order and decodes its document.
func (a *api) fetch(ctx context.Context, of entry) (row, error) {
	askedAt := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.before+of.orderID+a.after, nil)
	if err != nil {
		return row{}, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return row{}, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return row{}, fmt.Errorf("order %s: %s", of.orderID, response.Status)
	}
	body := a.buffers.Get().(*bytes.Buffer)
	defer a.buffers.Put(body)
	body.Reset()
	if _, err := body.ReadFrom(response.Body); err != nil {
		return row{}, err
	}
	return newRow(of, askedAt, body.Bytes())
}
