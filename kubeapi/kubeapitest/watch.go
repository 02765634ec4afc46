package kubeapitest

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodewright/nodewright/internal/wake"
)

// bookmarkEvery is how often a watch gets a bookmark with the current revision, as from the API
// server.
const bookmarkEvery = time.Minute

// stream is one open watch.
type stream struct {
	s         *Server
	k         kind
	q         Request
	selector  fields.Selector
	bookmarks bool

	// Server.mu guards these fields.
	pending []event     // selected, and not sent yet
	news    wake.Signal // set when pending has
	silent  bool

	info runtime.SerializerInfo
	out  io.Writer
	http http.ResponseWriter
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, k kind, q Request) {
	query := r.URL.Query()
	st := &stream{s: s, k: k, q: q, bookmarks: query.Get("allowWatchBookmarks") == "true", info: s.format(r), http: w, news: wake.New()}
	var err error
	if st.selector, err = fields.ParseSelector(q.Fields); err != nil {
		s.answer(w, r, nil, apierrors.NewBadRequest(err.Error()))
		return
	}
	initial := query.Get("sendInitialEvents") == "true"
	version := query.Get("resourceVersion")
	s.mu.Lock()
	noList, now, oldest, ended := s.noList, s.revision, s.oldest, s.ended
	s.mu.Unlock()
	from, err := strconv.ParseUint(version, 10, 64)
	switch {
	case initial && noList:
		err := apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
		s.answer(w, r, nil, err)
		return
	case initial || version == "" || version == "0":
		if from > now {
			s.answer(w, r, nil, tooLarge())
			return
		}
		initial = true
	case err != nil:
		s.answer(w, r, nil, apierrors.NewBadRequest(err.Error()))
		return
	case from < oldest:
		s.answer(w, r, nil, apierrors.NewResourceExpired("too old resource version"))
		return
	case from > now:
		s.answer(w, r, nil, tooLarge())
		return
	}
	w.Header().Set("Content-Type", st.info.MediaType)
	if st.info.MediaType == runtime.ContentTypeProtobuf {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	}
	w.WriteHeader(http.StatusOK)
	st.out = st.info.StreamSerializer.NewFrameWriter(w)
	have, at := st.open(initial, from)
	defer st.leave()
	if initial && !st.begin(have, at, query.Get("sendInitialEvents") == "true") {
		return
	}
	st.flush()
	st.run(r, ended, query.Get("timeoutSeconds"))
}

// open registers the watch. If initial is true, it returns the existing objects and their revision,
// and later changes become pending. Otherwise the changes after the given revision (from) are
// pending.
func (st *stream) open(initial bool, from uint64) (have []object, at uint64) {
	s := st.s
	s.mu.Lock()
	defer s.mu.Unlock()
	r := st.k.resource
	s.open[r.String()]++
	if s.streams[r] == nil {
		s.streams[r] = map[*stream]bool{}
	}
	s.streams[r][st] = true
	st.silent = s.silent
	if !initial {
		for _, e := range s.events {
			if e.revision > from {
				st.offer(e)
			}
		}
		return nil, from
	}
	for _, o := range s.objects[r] {
		if st.selects(o, fieldsOf(o)) {
			have = append(have, o)
		}
	}
	return have, s.revision
}

func (st *stream) leave() {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	st.s.open[st.k.resource.String()]--
	delete(st.s.streams[st.k.resource], st)
}

// begin sends the existing objects. It returns false if the client is gone.
func (st *stream) begin(have []object, at uint64, mark bool) bool {
	for _, o := range have {
		if !st.send(watch.Added, o) {
			return false
		}
	}
	return !mark || st.bookmark(true, at)
}

// run sends changes until the watch ends.
func (st *stream) run(r *http.Request, ended chan struct{}, timeout string) {
	limit := time.Hour
	if n, err := strconv.Atoi(timeout); err == nil {
		limit = time.Duration(n) * time.Second
	}
	over, mark := time.NewTimer(limit), time.NewTicker(bookmarkEvery)
	defer over.Stop()
	defer mark.Stop()
	for due := false; ; {
		events, at, silent := st.take()
		for _, e := range events {
			if !st.send(e.kind, e.object) {
				return
			}
		}
		if due && st.bookmarks && !silent && !st.bookmark(false, at) {
			return
		}
		due = false
		end := over.C
		if silent {
			end = nil
		}
		select {
		case <-st.news:
		case <-mark.C:
			due = true
		case <-end:
			return
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// take returns the events to send, the revision of the last one, and whether the watch
// is silenced (Silence).
func (st *stream) take() (events []event, at uint64, silent bool) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	events, st.pending = st.pending, nil
	if st.silent {
		events = nil
	}
	return events, st.s.revision, st.silent
}

// selects reports whether the selector of the watch matches an object with these fields.
func (st *stream) selects(o object, fields fields.Set) bool {
	return (st.q.Key.Namespace == "" || o.GetNamespace() == st.q.Key.Namespace) && st.selector.Matches(fields)
}

// offer queues a change, as the event that fits the watch's selector: an object that no
// longer matches is sent as deleted. The caller holds Server.mu.
func (st *stream) offer(e event) {
	if e.resource != st.k.resource || st.silent {
		return
	}
	was, is := e.before != nil && st.selects(e.before, e.had), e.kind != watch.Deleted && st.selects(e.object, e.has)
	switch {
	case is && was:
		e.kind = watch.Modified
	case is:
		e.kind = watch.Added
	case was:
		e.kind = watch.Deleted
	default:
		return
	}
	st.pending = append(st.pending, e)
	st.news.Set()
}

func (st *stream) bookmark(initial bool, at uint64) bool {
	o := st.k.object.DeepCopyObject().(object)
	o.SetResourceVersion(strconv.FormatUint(at, 10))
	if initial {
		o.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return st.send(watch.Bookmark, st.s.typed(o).(object))
}

func (st *stream) send(t watch.EventType, o object) bool {
	var b bytes.Buffer
	if err := st.info.Serializer.Encode(o, &b); err != nil {
		return false
	}
	ev := &metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: b.Bytes()}}
	ok := st.info.StreamSerializer.Encode(ev, st.out) == nil
	st.flush()
	return ok
}

func (st *stream) flush() {
	if f, ok := st.http.(http.Flusher); ok {
		f.Flush()
	}
}
