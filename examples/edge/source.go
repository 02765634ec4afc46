package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/agent/part"
	"github.com/nodewright/nodewright/podmgr"
)

const (
	// longPoll is the time in seconds for which the server may wait for a change before
	// it answers. pollTimeout limits one request.
	longPoll    = "wait=60"
	pollTimeout = 75 * time.Second
	// pollPause is the pause between two requests. Each failure doubles the pause, up to
	// maxPollPause.
	pollPause    = time.Second
	maxPollPause = 30 * time.Second
)

// lastOrders is the key of the last valid list in the store.
const lastOrders = "last"

// orders is a podmgr.Source with the pods in the list of a web server.
type orders struct {
	url    string
	client *http.Client
	store  part.Store
	log    *zap.Logger

	last   []byte  // body of the last response, or nil if its list was invalid
	etag   string  // ETag of the last response
	good   []order // the last valid list; nil before the first
	failed string  // the last logged error
}

func newOrders(url string, store part.Store, log *zap.Logger) (*orders, error) {
	return &orders{url: url, client: newClient(), store: store, log: log}, checkURL("orders", url)
}

// Name implements podmgr.Source.
func (*orders) Name() string { return "orders" }

// Run implements podmgr.Source.
func (o *orders) Run(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	o.recall(deliver)
	for pause := pollPause; ctx.Err() == nil; {
		err := o.poll(ctx, deliver)
		if pause = min(2*pause, maxPollPause); err == nil {
			pause = pollPause
		}
		o.note(err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil
}

// recall delivers the list that an earlier process has stored, if there is one.
func (o *orders) recall(deliver func(podmgr.Snapshot)) {
	body, err := o.store.Read(lastOrders)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		o.good, err = readOrders(body)
	}
	if err != nil {
		o.log.Warn("failed to read stored orders", zap.Error(err))
		return
	}
	deliver(podmgr.Snapshot{Pods: podsOf(o.good)})
}

// poll makes one request. It delivers and stores the list if the list has changed.
func (o *orders) poll(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	body, etag, err := o.fetch(ctx)
	if err != nil || bytes.Equal(body, o.last) {
		return err
	}
	list, err := readOrders(body)
	if err != nil {
		o.etag, o.last = "", nil // without an ETag, the next response contains the list
		o.keep(err, deliver)
		return err
	}
	o.etag, o.last, o.good = etag, body, list
	deliver(podmgr.Snapshot{Pods: podsOf(list)})
	if err := o.store.Write(lastOrders, body); err != nil {
		o.log.Warn("failed to write orders", zap.Error(err))
	}
	return nil
}

// keep delivers the last valid list together with the error wrong. Before the first valid
// list it delivers nothing, since the agent removes no pods before the first delivery.
func (o *orders) keep(wrong error, deliver func(podmgr.Snapshot)) {
	if o.good == nil {
		return
	}
	deliver(podmgr.Snapshot{Pods: podsOf(o.good), Problems: []podmgr.Problem{
		{Source: o.Name(), File: o.url, Reason: wrong.Error(), Kept: true},
	}})
}

// fetch requests the list, and returns the body and the ETag of the response. If the server
// has no newer list, it returns the last body.
func (o *orders) fetch(ctx context.Context) (body []byte, etag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		return nil, "", err
	}
	if o.etag != "" {
		req.Header.Set("If-None-Match", o.etag)
		req.Header.Set("Prefer", longPoll)
	}
	said, err := exchange(o.client, req)
	switch {
	case err != nil:
		return nil, "", err
	case said.status == http.StatusNotModified && o.etag != "":
		return o.last, o.etag, nil
	case said.status != http.StatusOK:
		return nil, "", said.refusal()
	}
	return said.body, said.etag, nil
}

// note logs an error if it differs from the last logged one. It also logs the first success
// after an error.
func (o *orders) note(err error) {
	switch {
	case err == nil && o.failed != "":
		o.failed = ""
		o.log.Info("orders are valid again")
	case err != nil && err.Error() != o.failed && !errors.Is(err, context.Canceled):
		o.failed = err.Error()
		o.log.Warn("failed to read orders; keeping the last list", zap.Error(err))
	}
}

func podsOf(list []order) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(list))
	for _, o := range list {
		pods = append(pods, o.pod())
	}
	return pods
}
