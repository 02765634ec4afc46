package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// hungLogs are logs of which nothing comes.
type hungLogs struct{}

func (hungLogs) LogFile(ctx context.Context, _ string) (path string, open bool, err error) {
	<-ctx.Done()
	return "", false, ctx.Err()
}

// As many streams of one kind as anybody wants leave room for the others.
func TestStreamsOfOneKindLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := whole(t)
		c.Logs, c.Streams, c.Requests = hungLogs{}, 8, 100
		h := handler(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		refused, mu := 0, sync.Mutex{}
		for range 50 {
			wg.Go(func() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "https://node/containerLogs/default/web/c?follow=true", nil))
				mu.Lock()
				defer mu.Unlock()
				if w.Code == http.StatusTooManyRequests {
					refused++
				}
			})
		}
		synctest.Wait()
		mu.Lock()
		if refused != 50-6 {
			t.Errorf("%d of 50 are refused, want all but three quarters of 8", refused)
		}
		mu.Unlock()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "https://node/exec/default/web/c?output=1&command=ls", nil))
		if w.Code != http.StatusBadRequest { // for it asks for no upgrade
			t.Errorf("exec beside them = %d %s, want 400", w.Code, w.Body)
		}
		cancel()
		wg.Wait()
	})
}

// Whoever only connects has so many connections and no more, and gets new ones
// when they have ended.
func TestFloodOfConnections(t *testing.T) {
	c := whole(t)
	c.Requests, c.Streams = 4, 4 // 16 connections of a host
	n := run(t, c)
	type answer struct {
		conn net.Conn
		err  error
	}
	answers := make(chan answer)
	open := map[net.Conn]bool{}
	for range 100 {
		conn, err := net.Dial("tcp", n.healthz)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		open[conn] = true
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				resp.Body.Close()
			}
			answers <- answer{conn, err}
		}()
	}
	// A new connection takes the place of an unused one, so the server has accepted all of them
	// once it has closed all but 16.
	for range 100 - 16 {
		a := <-answers
		if a.err == nil {
			t.Fatal("an answer without a request")
		}
		delete(open, a.conn)
	}
	for conn := range open {
		fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	for range 16 {
		if a := <-answers; a.err != nil {
			t.Errorf("one of the 16 connections is not served: %v", a.err)
		}
	}
	for conn := range open {
		conn.Close()
	}
	late := time.Now().Add(2 * time.Minute)
	for {
		resp, err := http.Get("http://" + n.healthz + "/healthz")
		if err == nil {
			resp.Body.Close()
			return
		}
		if time.Now().After(late) {
			t.Fatalf("after they have ended: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
