package localapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	goflag "flag"
	"os"
	"reflect"
	"testing"

	"github.com/nodewright/nodewright/localapi/internal/schema"
)

var update = goflag.Bool("update", false, "rewrite internal/schema/descriptions.json.gz from Kubernetes' types")

const packed = "internal/schema/descriptions.json.gz"

// The descriptions that are embedded are those of Kubernetes' types, of all that the
// kinds served here are made of, and models have the names that the types give them.
//
//	go test ./localapi -run TestDescriptions -update
func TestDescriptions(t *testing.T) {
	want := schema.Descriptions{}
	for _, k := range newKinds() {
		describe(t, want, reflect.TypeOf(k.empty))
		describe(t, want, reflect.TypeOf(k.list))
	}
	if *update {
		var buf bytes.Buffer
		w, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewEncoder(w).Encode(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(packed, buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var have schema.Descriptions
	if err := json.NewDecoder(r).Decode(&have); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("%s has %d models, Kubernetes' types %d, or they differ: run with -update", packed, len(have), len(want))
	}
}

// describe adds what a type says of itself and of all that is in it.
func describe(t *testing.T, d schema.Descriptions, of reflect.Type) {
	of = schema.Bare(of)
	if _, ok := schema.ScalarOf(of); ok || schema.Anything(of) {
		return
	}
	switch of.Kind() {
	case reflect.Map, reflect.Slice:
		describe(t, d, of.Elem())
		return
	}
	s := schema.Of(of)
	if _, ok := d[s.Name]; ok {
		return
	}
	d[s.Name] = map[string]string{}
	value := reflect.New(of)
	if n, ok := value.Interface().(interface{ OpenAPIModelName() string }); ok && n.OpenAPIModelName() != s.Name {
		t.Errorf("model %s, want %s", s.Name, n.OpenAPIModelName())
	}
	texts := map[string]string{}
	if x, ok := value.Elem().Interface().(interface{ SwaggerDoc() map[string]string }); ok {
		texts = x.SwaggerDoc()
	}
	if text := texts[""]; text != "" {
		d[s.Name][""] = text
	}
	for i := range s.Fields {
		f := &s.Fields[i]
		if text := texts[f.Name]; text != "" {
			d[s.Name][f.Name] = text
		}
		describe(t, d, f.Type)
	}
}
