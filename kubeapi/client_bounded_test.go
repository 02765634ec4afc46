package kubeapi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nodewright/nodewright/internal/quantity"
	"github.com/nodewright/nodewright/kubeapi"
)

const endless = "1e-2000000000"

// part is a field of a message that has bytes.
func part(n protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// envelope is what an object of Kubernetes is in protobuf.
func envelope(kind string, object []byte) []byte {
	return join([]byte("k8s\x00"), part(1, join(part(1, []byte("v1")), part(2, []byte(kind)))), part(2, object))
}

// costlyPod has a quantity that is computed for ever, in spec.containers[0].resources.limits.
func costlyPod(text string) []byte {
	amount := join(part(1, []byte("cpu")), part(2, part(1, []byte(text))))
	return part(2, part(2, join(part(1, []byte("c")), part(8, part(1, amount)))))
}

const jsonPod = `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"%s"}}}]}}`

// answering is a client of a server that says the same to everybody.
func answering(t *testing.T, contentType string, body io.Reader) *kubeapi.Client {
	t.Helper()
	c, err := kubeapi.New(kubeapi.Config{Timeout: 20 * time.Second, REST: &rest.Config{Host: "http://server", Transport: answer(func() *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(body)}
	})}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type answer func() *http.Response

func (a answer) RoundTrip(req *http.Request) (*http.Response, error) {
	res := a()
	res.Request = req
	return res, nil
}

// soon fails the test if f takes for ever.
func soon(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatal("the answer is still decoded")
		return nil
	}
}

func frame(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

// A quantity in an answer that would be computed for ever is an error at once, in
// JSON and in protobuf, in an object, a list and an event.
func TestQuantitiesInAnswersAreLookedAt(t *testing.T) {
	list := fmt.Sprintf(`{"apiVersion":"v1","kind":"PodList","items":[%s]}`, jsonPod)
	event := `{"type":"ADDED","object":` + jsonPod + `}`
	protoEvent := func(text string) []byte {
		return frame(join(part(1, []byte("ADDED")), part(2, part(1, envelope("Pod", costlyPod(text))))))
	}
	for name, tc := range map[string]struct {
		kind string
		text func(quantity string) []byte
		into runtime.Object // nil: a watch
	}{
		"object, JSON":     {runtime.ContentTypeJSON, func(q string) []byte { return fmt.Appendf(nil, jsonPod, q) }, &v1.Pod{}},
		"list, JSON":       {runtime.ContentTypeJSON, func(q string) []byte { return fmt.Appendf(nil, list, q) }, &v1.PodList{}},
		"event, JSON":      {runtime.ContentTypeJSON, func(q string) []byte { return fmt.Appendf(nil, event, q) }, nil},
		"object, protobuf": {runtime.ContentTypeProtobuf, func(q string) []byte { return envelope("Pod", costlyPod(q)) }, &v1.Pod{}},
		"list, protobuf":   {runtime.ContentTypeProtobuf, func(q string) []byte { return envelope("PodList", part(2, costlyPod(q))) }, &v1.PodList{}},
		"no kind":          {runtime.ContentTypeProtobuf, func(q string) []byte { return join([]byte("k8s\x00"), part(2, costlyPod(q))) }, &v1.Pod{}},
		"said twice": {runtime.ContentTypeProtobuf, func(q string) []byte {
			return join([]byte("k8s\x00"), part(1, join(part(1, []byte("v1")), part(2, []byte("Secret")))), part(1, part(2, []byte("Pod"))), part(2, costlyPod(q)))
		}, &v1.Pod{}},
		"event, protobuf": {runtime.ContentTypeProtobuf, protoEvent, nil},
	} {
		for _, q := range []string{"100m", endless} {
			err := soon(t, func() error {
				if tc.into != nil {
					return answering(t, tc.kind, bytes.NewReader(tc.text(q))).Get(t.Context(), kubeapi.Pods, kubeapi.Key{Namespace: "n", Name: "p"}, tc.into)
				}
				kind := tc.kind + ";stream=watch"
				w, err := answering(t, kind, bytes.NewReader(tc.text(q))).Watch(t.Context(), kubeapi.Pods, "", metav1.ListOptions{})
				if err != nil {
					return err
				}
				defer w.Stop()
				if ev := <-w.ResultChan(); ev.Type == watch.Error {
					return errors.New(ev.Object.(*metav1.Status).Message)
				}
				return nil
			})
			if want := q == endless; (err != nil) != want || want && !strings.Contains(err.Error(), quantity.ErrTooCostly.Error()) {
				t.Errorf("%s with %s: %v", name, q, err)
			}
		}
		if pod, ok := tc.into.(*v1.Pod); ok && pod.Spec.Containers[0].Resources.Limits.Cpu().Cmp(resource.MustParse("100m")) != 0 {
			t.Errorf("%s: %v", name, pod.Spec.Containers)
		}
	}
}

// A few megabytes do not become gigabytes.
func TestAnswersThatComeToMuchMore(t *testing.T) {
	containers := envelope("Pod", part(2, bytes.Repeat(part(2, nil), 1<<20)))
	err := soon(t, func() error {
		return answering(t, runtime.ContentTypeProtobuf, bytes.NewReader(containers)).Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &v1.Pod{})
	})
	if err == nil || !strings.Contains(err.Error(), "in memory") {
		t.Errorf("protobuf: %v", err)
	}
	values := `{"apiVersion":"v1","kind":"PodList","items":[` + strings.Repeat("{},", 6<<20) + `{}]}`
	err = soon(t, func() error {
		return answering(t, runtime.ContentTypeJSON, strings.NewReader(values)).List(t.Context(), kubeapi.Pods, "", metav1.ListOptions{}, &v1.PodList{})
	})
	if err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("JSON: %v", err)
	}
}

// One object is no larger than a server stores, alone, in a list and in an event; a
// list of many that are not is fine.
func TestOneObjectIsBounded(t *testing.T) {
	const mega = 1 << 20
	jsonMap := func(n int) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"` + strings.Repeat("x", n) + `"}}`
	}
	jsonList := func(field string, sizes ...int) []byte {
		var all []string
		for _, n := range sizes {
			all = append(all, jsonMap(n))
		}
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{},%q:[%s]}`, field, strings.Join(all, ","))
	}
	protoMap := func(n int) []byte {
		return join(part(1, part(1, []byte("c"))), part(2, join(part(1, []byte("k")), part(2, bytes.Repeat([]byte("x"), n)))))
	}
	protoList := func(sizes ...int) []byte {
		var all []byte
		for _, n := range sizes {
			all = append(all, part(2, protoMap(n))...)
		}
		return envelope("ConfigMapList", all)
	}
	many := part(2, bytes.Repeat(part(2, nil), mega)) // empty containers
	const asJSON, asProtobuf = runtime.ContentTypeJSON, runtime.ContentTypeProtobuf
	for name, tc := range map[string]struct {
		kind string
		body []byte
		how  string
		bad  string
	}{
		"object":                      {asProtobuf, envelope("ConfigMap", protoMap(6*mega)), "get", ""},
		"large object":                {asProtobuf, envelope("ConfigMap", protoMap(9*mega)), "get", "more than 8388608 bytes"},
		"list":                        {asProtobuf, protoList(3*mega, 3*mega, 3*mega), "list", ""},
		"list with a large object":    {asProtobuf, protoList(1, 9*mega, 1), "list", "an object has"},
		"list, swollen":               {asProtobuf, envelope("PodList", part(2, many)), "list", "in memory"},
		"event":                       {asProtobuf, frame(join(part(1, []byte("ADDED")), part(2, part(1, envelope("ConfigMap", protoMap(6*mega)))))), "watch", ""},
		"event of a large object":     {asProtobuf, frame(join(part(1, []byte("ADDED")), part(2, part(1, envelope("ConfigMap", protoMap(9*mega)))))), "watch", "an object has"},
		"object, JSON":                {asJSON, []byte(jsonMap(6 * mega)), "get", ""},
		"large object, JSON":          {asJSON, []byte(jsonMap(9 * mega)), "get", "more than 8388608 bytes"},
		"list, JSON":                  {asJSON, jsonList("items", 3*mega, 3*mega, 3*mega), "list", ""},
		"list with a large one, JSON": {asJSON, jsonList("items", 1, 9*mega), "list", "an object has"},
		"in a field like it, JSON":    {asJSON, jsonList("Items", 1, 9*mega), "list", "an object has"},
	} {
		err := soon(t, func() error {
			switch tc.how {
			case "get":
				return answering(t, tc.kind, bytes.NewReader(tc.body)).Get(t.Context(), kubeapi.ConfigMaps, kubeapi.Key{Namespace: "n", Name: "c"}, &v1.ConfigMap{})
			case "list":
				return answering(t, tc.kind, bytes.NewReader(tc.body)).List(t.Context(), kubeapi.ConfigMaps, "", metav1.ListOptions{}, &v1.ConfigMapList{})
			}
			w, err := answering(t, tc.kind+";stream=watch", bytes.NewReader(tc.body)).Watch(t.Context(), kubeapi.ConfigMaps, "", metav1.ListOptions{})
			if err != nil {
				return err
			}
			defer w.Stop()
			if ev := <-w.ResultChan(); ev.Type == watch.Error {
				return errors.New(ev.Object.(*metav1.Status).Message)
			}
			return nil
		})
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// An answer without end ends.
func TestAnAnswerWithoutEnd(t *testing.T) {
	n := &counting{}
	err := soon(t, func() error {
		return answering(t, runtime.ContentTypeJSON, n).Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &v1.Pod{})
	})
	if err == nil || n.read > 300<<20 {
		t.Errorf("%v after %d bytes", err, n.read)
	}
}

// counting has blanks without end.
type counting struct{ read int }

func (c *counting) Read(p []byte) (int, error) {
	if c.read > 1<<30 {
		return 0, errors.New("a gigabyte was read")
	}
	c.read += len(p)
	return len(p), nil
}

// YAML is not asked for, and not taken: its aliases may come to gigabytes.
func TestYAMLIsNotTaken(t *testing.T) {
	var pod v1.Pod
	err := answering(t, "application/yaml", strings.NewReader("apiVersion: v1\nkind: Pod\n")).Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &pod)
	if err == nil {
		t.Error("no error")
	}
}

// A server that asks to come back in a year is asked again in a minute.
func TestRetryAfterIsCapped(t *testing.T) {
	for _, header := range []string{"31536000", "9223372036854775807"} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			c, err := kubeapi.New(kubeapi.Config{Timeout: time.Hour, REST: &rest.Config{Host: "http://server", Transport: answer(func() *http.Response {
				if calls++; calls == 1 {
					return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {header}}, Body: http.NoBody}
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(fmt.Sprintf(jsonPod, "1")))}
			})}})
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			if err := c.Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &v1.Pod{}); err != nil || time.Since(begun) > kubeapi.MaxRetryAfter+time.Second {
				t.Errorf("%v after %v", err, time.Since(begun))
			}
			calls = 0
			err = c.Once().Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &v1.Pod{})
			if d, ok := kubeapi.RetryAfter(err); !ok || d != kubeapi.MaxRetryAfter {
				t.Errorf("%v, %v of %v", d, ok, err)
			}
		})
	}
}

// The time that an answer itself names is capped as well.
func TestRetryAfterOfAStatus(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{5: 5 * time.Second, 1 << 30: kubeapi.MaxRetryAfter} {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":%d}}`, seconds)
		c, err := kubeapi.New(kubeapi.Config{REST: &rest.Config{Host: "http://server", Transport: answer(func() *http.Response {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(body))}
		})}})
		if err != nil {
			t.Fatal(err)
		}
		err = c.Once().Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &v1.Pod{})
		if d, ok := kubeapi.RetryAfter(err); !ok || d != want {
			t.Errorf("%d: %v, %v of %v", seconds, d, ok, err)
		}
	}
	if _, ok := kubeapi.RetryAfter(io.EOF); ok {
		t.Error("an error of nobody's asks to wait")
	}
}

// Whatever a server answers in protobuf, what passes is decoded in a moment.
func FuzzAnswers(f *testing.F) {
	f.Add(envelope("Pod", costlyPod("1")))
	f.Add(envelope("Pod", costlyPod(endless)))
	f.Add(envelope("PodList", part(2, costlyPod(endless))))
	f.Add(envelope("Node", part(3, part(1, join(part(1, []byte("cpu")), part(2, part(1, []byte(endless))))))))
	f.Fuzz(func(t *testing.T, b []byte) {
		begun := time.Now()
		_ = answering(t, runtime.ContentTypeProtobuf, bytes.NewReader(b)).Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, &v1.Pod{})
		if d := time.Since(begun); d > time.Minute {
			t.Errorf("%q takes %v", b, d)
		}
	})
}

// What an API server says is taken: all kinds of values of maps and lists.
func TestAnswersAreTaken(t *testing.T) {
	scheme, err := kubeapi.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	for kind, typ := range scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal || kind.Group == kubeapi.ClusterTrustBundles.Group && kind.Version == kubeapi.ClusterTrustBundles.Version {
			continue // not in protobuf
		}
		obj := reflect.New(typ).Interface().(runtime.Object)
		fill(reflect.ValueOf(obj).Elem(), 12)
		obj.GetObjectKind().SetGroupVersionKind(kind)
		b, err := runtime.Encode(info.Serializer, obj)
		if err != nil {
			continue // none that is decoded
		}
		c := answering(t, runtime.ContentTypeProtobuf, bytes.NewReader(b))
		if err := c.Get(t.Context(), kubeapi.Pods, kubeapi.Key{Name: "p"}, reflect.New(typ).Interface().(runtime.Object)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// fill gives each field a value, depth levels deep.
func fill(v reflect.Value, depth int) {
	switch p := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*p = resource.MustParse("1500m")
		return
	case *metav1.Time:
		*p = metav1.Unix(1e9, 0)
		return
	case *metav1.MicroTime:
		*p = metav1.NewMicroTime(time.Unix(1e9, 0))
		return
	case *runtime.RawExtension:
		p.Raw = []byte("{}")
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth)
			}
		}
	}
	if depth == 0 {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth-1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(1), depth-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth-1)
		fill(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}
