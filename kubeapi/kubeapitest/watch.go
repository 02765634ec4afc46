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
)

// bookmarkEvery is how often a watch is told of the revision it is at; as the
// API server does.
const bookmarkEvery = time.Minute

// stream is one open watch.
type stream struct {
	s         *Server
	k         kind
	q         Request
	selector  fields.Selector
	revision  uint64 // all up to here was told
	bookmarks bool
	silent    bool

	info runtime.SerializerInfo
	out  io.Writer
	http http.ResponseWriter
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, k kind, q Request) {
	query := r.URL.Query()
	st := &stream{s: s, k: k, q: q, bookmarks: query.Get("allowWatchBookmarks") == "true", info: s.format(r), http: w}
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
	switch from, err := strconv.ParseUint(version, 10, 64); {
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
	default:
		st.revision = from
	}
	w.Header().Set("Content-Type", st.info.MediaType)
	if st.info.MediaType == runtime.ContentTypeProtobuf {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	}
	w.WriteHeader(http.StatusOK)
	st.out = st.info.StreamSerializer.NewFrameWriter(w)
	s.count(k, 1)
	defer s.count(k, -1)
	if initial && !st.begin(query.Get("sendInitialEvents") == "true") {
		return
	}
	st.flush()
	st.run(r, ended, query.Get("timeoutSeconds"))
}

func (s *Server) count(k kind, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[k.resource.String()] += n
}

// begin reports all that is there.
func (st *stream) begin(mark bool) bool {
	st.s.mu.Lock()
	var have []object
	for _, o := range st.s.objects[st.k.resource] {
		if st.selects(o) {
			have = append(have, o)
		}
	}
	st.revision = st.s.revision
	st.s.mu.Unlock()
	for _, o := range have {
		if !st.send(watch.Added, o) {
			return false
		}
	}
	return !mark || st.bookmark(true)
}

// run reports what changes until the watch ends.
func (st *stream) run(r *http.Request, ended chan struct{}, timeout string) {
	limit := time.Hour
	if n, err := strconv.Atoi(timeout); err == nil {
		limit = time.Duration(n) * time.Second
	}
	over, mark := time.NewTimer(limit), time.NewTicker(bookmarkEvery)
	defer over.Stop()
	defer mark.Stop()
	for {
		st.s.mu.Lock()
		st.silent = st.silent || st.s.silent
		events, changed := st.s.events, st.s.changed
		st.s.mu.Unlock()
		for _, e := range events {
			if e.revision > st.revision && !st.silent {
				st.revision = e.revision
				if !st.tell(e) {
					return
				}
			}
		}
		st.flush()
		end := over.C
		if st.silent {
			end = nil
		}
		select {
		case <-changed:
		case <-mark.C:
			if st.bookmarks && !st.silent && !st.bookmark(false) {
				return
			}
		case <-end:
			return
		case <-ended:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (st *stream) selects(o object) bool {
	return (st.q.Key.Namespace == "" || o.GetNamespace() == st.q.Key.Namespace) && st.selector.Matches(fieldsOf(o))
}

// tell sends one change, as it looks to who sees only what is selected.
func (st *stream) tell(e event) bool {
	if e.resource != st.k.resource {
		return true
	}
	was, is := e.before != nil && st.selects(e.before), e.kind != watch.Deleted && st.selects(e.object)
	switch {
	case is && was:
		return st.send(watch.Modified, e.object)
	case is:
		return st.send(watch.Added, e.object)
	case was:
		return st.send(watch.Deleted, e.object)
	}
	return true
}

func (st *stream) bookmark(initial bool) bool {
	o := st.k.object.DeepCopyObject().(object)
	o.SetResourceVersion(strconv.FormatUint(st.revision, 10))
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
