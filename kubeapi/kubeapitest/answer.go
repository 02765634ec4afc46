package kubeapitest

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// format chooses protobuf for clients that accept it.
func (s *Server) format(r *http.Request) runtime.SerializerInfo {
	s.mu.Lock()
	want := runtime.ContentTypeJSON
	if !s.json && strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		want = runtime.ContentTypeProtobuf
	}
	s.mu.Unlock()
	info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), want)
	return info
}

// answer writes an object, or an error as a server reports it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, obj runtime.Object, err error) {
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		st := status.Status()
		code = int(st.Code)
		if d := st.Details; d != nil && d.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
		}
		st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		obj = &st
	}
	if obj.GetObjectKind().GroupVersionKind().Empty() {
		s.typed(obj)
	}
	info := s.format(r)
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	_ = info.Serializer.Encode(obj, w)
}
