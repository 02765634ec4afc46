package podsync

import (
	"bytes"
	"encoding/pem"
	"slices"
	"testing"
)

func block(kind, content string, headers ...string) string {
	b := &pem.Block{Type: kind, Bytes: []byte(content)}
	if len(headers) > 0 {
		b.Headers = map[string]string{headers[0]: headers[1]}
	}
	return string(pem.EncodeToMemory(b))
}

func TestAnchors(t *testing.T) {
	for _, tc := range []struct {
		name string
		text []string
		want []string // without order
	}{
		{"nothing", []string{""}, nil},
		{"no PEM", []string{"a certificate"}, nil},
		{"one", []string{block(pemType, "a")}, []string{"a"}},
		{"two in one bundle", []string{block(pemType, "a") + block(pemType, "b")}, []string{"a", "b"}},
		{"twice in one", []string{block(pemType, "a") + block(pemType, "a")}, []string{"a"}},
		{"in two bundles", []string{block(pemType, "a") + block(pemType, "b"), block(pemType, "b") + block(pemType, "c")}, []string{"a", "b", "c"}},
		{"text around", []string{"# the root\n" + block(pemType, "a") + "\nand no more\n"}, []string{"a"}},
		{"headers", []string{block(pemType, "a", "Name", "x") + block(pemType, "a")}, []string{"a"}},
		{"other blocks", []string{block("PRIVATE KEY", "k") + block(pemType, "a")}, []string{"a"}},
		{"an empty block", []string{block(pemType, "") + block(pemType, "a")}, []string{"a"}},
		{"a block that is cut off", []string{block(pemType, "a") + "-----BEGIN CERTIFICATE-----\nAAAA"}, []string{"a"}},
	} {
		all := anchors{}
		for _, text := range tc.text {
			all.add(text)
		}
		out := all.encode()
		var got []string
		for rest := out; ; {
			var b *pem.Block
			if b, rest = pem.Decode(rest); b == nil {
				break
			}
			if b.Type != pemType || len(b.Headers) > 0 {
				t.Errorf("%s: a block of type %s with headers %v", tc.name, b.Type, b.Headers)
			}
			got = append(got, string(b.Bytes))
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		backwards := anchors{}
		for _, text := range slices.Backward(tc.text) {
			backwards.add(text)
		}
		if again := backwards.encode(); !bytes.Equal(again, out) {
			t.Errorf("%s: another order of bundles is another answer", tc.name)
		}
	}
}

func FuzzAnchors(f *testing.F) {
	f.Add(block(pemType, "a")+"x"+block(pemType, "b", "K", "V"), "")
	f.Add("-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, a, b string) {
		all := decode(a)
		all.add(b)
		out := all.encode()
		if again := decode(string(out)).encode(); !bytes.Equal(again, out) {
			t.Errorf("%q is not %q", again, out)
		}
	})
}
