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
	// longPoll is the time that the server may wait for a change before it answers.
	// pollTimeout is the limit of one request.
	longPoll    = "wait=60"
	pollTimeout = 75 * time.Second
	// pollPause is the shortest time between two requests. Each failure doubles the
	// time, up to maxPollPause.
	pollPause    = time.Second
	maxPollPause = 30 * time.Second
)

// lastOrders is the key of the last good list.
const lastOrders = "last"

// orders is a podmgr.Source with the pods in the list of a web server.
type orders struct {
	url    string
	client *http.Client
	store  part.Store
	log    *zap.Logger

	last   []byte  // the last answer, unless it could not be read
	etag   string  // of it
	good   []order // the last list that could be read; nil before the first
	failed string  // error that was logged last
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

// recall delivers the list that an earlier process has stored.
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

// poll makes one request, and delivers a changed list.
func (o *orders) poll(ctx context.Context, deliver func(podmgr.Snapshot)) error {
	body, etag, err := o.fetch(ctx)
	if err != nil || bytes.Equal(body, o.last) {
		return err
	}
	list, err := readOrders(body)
	if err != nil {
		o.etag, o.last = "", nil // so that the next answer is a full one
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

// keep delivers the last good list together with the error in wrong. Before the first
// good list it delivers nothing, since the agent removes no pods before the first
// delivery.
func (o *orders) keep(wrong error, deliver func(podmgr.Snapshot)) {
	if o.good == nil {
		return
	}
	deliver(podmgr.Snapshot{Pods: podsOf(o.good), Problems: []podmgr.Problem{
		{Source: o.Name(), File: o.url, Reason: wrong.Error(), Kept: true},
	}})
}

// fetch returns the list as the server sent it, and its ETag. If the server has no
// newer list, it returns the last one.
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

// note logs a failure if it differs from the last one. It also logs when requests
// succeed again.
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
