package podmgr_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodewright/nodewright/podmgr"
)

const manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: 'i:1'}]}\n"

// server answers requests without a network.
type server struct{ now atomic.Pointer[answer] }

type answer struct {
	status int
	body   string
	err    error
}

func (srv *server) RoundTrip(*http.Request) (*http.Response, error) {
	s := srv.now.Load()
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{StatusCode: s.status, Status: fmt.Sprint(s.status), Body: io.NopCloser(bytes.NewBufferString(s.body))}, nil
}

func TestHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{}
		srv.now.Store(&answer{status: http.StatusInternalServerError})
		src, err := podmgr.HTTP(podmgr.HTTPConfig{URL: "http://host/pods", NodeName: "n", Interval: time.Second, Client: srv})
		if err != nil {
			t.Fatal(err)
		}
		m, err := podmgr.New(podmgr.Config{Sources: []podmgr.Source{src}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = m.Run(t.Context()) }()
		for _, step := range []struct {
			what           string
			answer         answer
			ready          bool
			pods, problems int
		}{
			{"refused", answer{status: 500}, false, 0, 0},
			{"a pod", answer{status: 200, body: manifest}, true, 1, 0},
			{"the same", answer{status: 200, body: manifest}, true, 1, 0},
			{"a broken body keeps it", answer{status: 200, body: "{ bad"}, true, 1, 1},
			{"no answer keeps it", answer{err: errors.New("down")}, true, 1, 1},
			{"another status keeps it", answer{status: 404}, true, 1, 1},
			{"an empty body", answer{status: 200}, true, 0, 0},
			{"again", answer{status: 200, body: manifest}, true, 1, 0},
		} {
			srv.now.Store(&step.answer)
			time.Sleep(time.Second)
			synctest.Wait()
			if m.AllReady() != step.ready || len(m.Pods()) != step.pods || len(m.Problems()) != step.problems {
				t.Errorf("%s: ready %v, %d pods, problems %v", step.what, m.AllReady(), len(m.Pods()), m.Problems())
			}
		}
		if c := <-m.Changes(); c.Op != podmgr.Add || len(c.Pods) != 1 {
			t.Errorf("a late receiver gets %v of %d pods, want one ADD of the pod", c.Op, len(c.Pods))
		}
	})
}

func TestConfigMistakesAreToldAtOnce(t *testing.T) {
	_, err := podmgr.Directory(podmgr.DirectoryConfig{Path: "relative", Rescan: -1})
	if joined := errors.Unwrap(err); joined == nil || len(joined.(interface{ Unwrap() []error }).Unwrap()) != 3 {
		t.Errorf("Directory: %v; want three mistakes", err)
	}
	if _, err := podmgr.HTTP(podmgr.HTTPConfig{URL: "ftp://x"}); err == nil {
		t.Error("HTTP takes a URL that is not http")
	}
	if _, err := podmgr.New(podmgr.Config{}); err == nil {
		t.Error("New takes no sources")
	}
}
