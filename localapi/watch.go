package localapi

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodewright/nodewright/localapi/internal/objects"
)

const (
	// bookmarkEvery is how often a watch that wants bookmarks gets one, with its current
	// revision; as in the API server.
	bookmarkEvery = time.Minute
	// watchTime is the default duration of a watch.
	watchTime = 30 * time.Minute
	// nodeEvery is how often the node's facts are read while a client watches the node.
	nodeEvery = 10 * time.Second
)

// stream is one running watch.
type stream struct {
	s        *Server
	k        *kind
	q        *query
	w        http.ResponseWriter
	rc       *http.ResponseController
	out      io.Writer
	revision uint64 // all changes up to this revision were sent
	headers  bool   // the next table includes the column definitions
}

// watch sends changes until the client disconnects or reads too slowly, or until the
// time of the watch is over.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	if n := len(r.URL.RawQuery); n > maxQuery {
		return generic(http.StatusRequestURITooLong, metav1.StatusReasonBadRequest, fmt.Sprintf("the query has %d bytes; want at most %d", n, maxQuery))
	}
	if !s.pools.watches.Take(q.client, 1) {
		return tooMany("there are too many watches")
	}
	defer s.pools.watches.Give(q.client, 1)
	q.entered.leave()
	ctx := r.Context()
	if q.accept.info.StreamSerializer == nil {
		q.accept.info = s.codecs.infos[typeJSON]
	}
	if err := s.fresh(ctx, k); err != nil {
		return err
	}
	st := &stream{s: s, k: k, q: q, w: w, rc: http.NewResponseController(w), headers: true}
	_ = st.rc.SetReadDeadline(time.Time{}) // fails in tests with a recorder
	initial, objects, err := st.start(ctx)
	if err != nil {
		return err
	}
	media := q.accept.info.MediaType
	if media == typeProtobuf {
		media += ";stream=watch"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusOK)
	st.out = q.accept.info.StreamSerializer.NewFrameWriter(w)
	st.setDeadline()
	for _, o := range objects {
		if !st.send(watch.Added, o) {
			return nil
		}
	}
	if initial && flag(q.values, "sendInitialEvents") && !st.bookmark(true) {
		return nil
	}
	if st.flush() {
		st.run(ctx)
	}
	return nil
}

// start determines the revision from which a watch reports changes, and the objects
// that are sent before.
func (st *stream) start(ctx context.Context) (initial bool, objects []object, err error) {
	v := st.q.values
	from, err := parseRevision(v.Get("resourceVersion"))
	if err != nil {
		return false, nil, apierrors.NewBadRequest(err.Error())
	}
	s := st.s
	oldest, now := s.set.Bounds()
	initial = from == 0
	if v.Has("sendInitialEvents") {
		initial = flag(v, "sendInitialEvents")
	}
	switch {
	case from > now:
		return false, nil, tooLarge(from, now)
	case initial:
		objects, st.revision, err = s.snapshot(ctx, st.k, &query{
			values: nil, namespace: st.q.namespace, name: st.q.name, labels: st.q.labels, fields: st.q.fields,
		}, next{})
		return true, objects, err
	case from == 0: // from now on
		st.revision = now
		return false, nil, nil
	case from < oldest:
		return false, nil, apierrors.NewResourceExpired("too old resource version: " + v.Get("resourceVersion"))
	default:
		st.revision = from
		return false, nil, nil
	}
}

func (st *stream) run(ctx context.Context) {
	limit := watchTime
	if n, err := strconv.Atoi(st.q.values.Get("timeoutSeconds")); err == nil && n > 0 && n < 1<<20 {
		limit = time.Duration(n) * time.Second
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	var mark, look <-chan time.Time
	if flag(st.q.values, "allowWatchBookmarks") {
		t := time.NewTicker(bookmarkEvery)
		defer t.Stop()
		mark = t.C
	}
	if st.k == st.s.nodes {
		t := time.NewTicker(nodeEvery)
		defer t.Stop()
		look = t.C
	}
	for {
		changes, changed, ok := st.s.set.Since(st.revision)
		if !ok { // the client is too slow: changes have been dropped
			st.fail(apierrors.NewResourceExpired("the watch is too slow: changes after resource version " + strconv.FormatUint(st.revision, 10) + " have been dropped"))
			return
		}
		if !st.tell(changes) {
			return
		}
		if changed == nil && ctx.Err() == nil { // more changes are available
			continue
		}
		select {
		case <-changed:
		case <-mark:
			if !st.bookmark(false) || !st.flush() {
				return
			}
		case <-look:
			_ = st.s.fresh(ctx, st.k) // after a failure, the former facts remain
		case <-over.C:
			return
		case <-st.s.ending:
			return
		case <-ctx.Done():
			return
		}
	}
}

// tell sends the selected changes. It returns false if one cannot be sent.
func (st *stream) tell(changes []objects.Step) bool {
	sent := false
	for i := range changes {
		c := &changes[i]
		st.revision = c.Revision
		if c.Kind != st.k {
			continue
		}
		if t, o, ok := c.EventOf(func(o object) bool { return st.q.selects(st.k, o) }); ok {
			if !st.send(t, o) {
				return false
			}
			sent = true
		}
	}
	return !sent || st.flush()
}

func (st *stream) bookmark(end bool) bool {
	o := st.k.new()
	o.SetResourceVersion(strconv.FormatUint(st.revision, 10))
	o.GetObjectKind().SetGroupVersionKind(st.k.GroupVersionKind)
	if end {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if st.q.accept.as != "Table" {
		return st.send(watch.Bookmark, o)
	}
	t, err := tableOf(st.q.form, nil, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, metav1.IncludeNone, st.headers, time.Now())
	return err == nil && st.encode(watch.Bookmark, t)
}

func (st *stream) send(t watch.EventType, o object) bool {
	out, err := st.s.shaped(st.q, []object{o}, metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, true, st.headers)
	st.headers = false
	return err == nil && st.encode(t, out)
}

func (st *stream) fail(err error) { _ = st.encode(watch.Error, statusOf(err)) && st.flush() }

func (st *stream) encode(t watch.EventType, o runtime.Object) bool {
	var b bytes.Buffer
	if err := st.q.accept.info.Serializer.Encode(o, &b); err != nil {
		return false
	}
	e := &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: b.Bytes()}}
	// The object is in memory twice until the client has read it.
	unread := int64(2 * b.Len())
	if t != watch.Error {
		if !st.s.pools.outgoing.Take(st.q.client, unread) {
			st.fail(tooMany("too many bytes of answers wait for clients to read them"))
			return false
		}
		defer st.s.pools.outgoing.Give(st.q.client, unread)
	}
	st.setDeadline()
	return st.q.accept.info.StreamSerializer.Encode(e, st.out) == nil
}

// setDeadline sets the deadline for the client to read the next data.
func (st *stream) setDeadline() {
	_ = st.rc.SetWriteDeadline(time.Now().Add(st.s.cfg.ReaderTimeout)) // fails in tests with a recorder
}

// flush sends the written data, and then removes the write deadline: if it passed, it would end an
// idle stream of HTTP/2.
func (st *stream) flush() bool {
	st.setDeadline()
	err := st.rc.Flush()
	_ = st.rc.SetWriteDeadline(time.Time{})
	return err == nil
}
