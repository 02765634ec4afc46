package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/localcri/internal/wire"
)

// full is a message with every field set to a value of its own.
func full() wire.Message {
	m := wire.Message{Type: wire.Start, Version: wire.Version, Seq: 7}
	v := reflect.ValueOf(&m).Elem()
	for i := 3; i < v.NumField(); i++ {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case reflect.Uint64:
			f.SetUint(uint64(i) << 33)
		}
	}
	m.Create = []string{"/runc", "", "x y"}
	m.Start = []string{"z"}
	m.Record = []byte{0, 1, 2}
	return m
}

func TestEveryFieldSurvives(t *testing.T) {
	m := full()
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Fatalf("field %s is not set by the test", v.Type().Field(i).Name)
		}
	}
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("got  %+v\nwant %+v", got, m)
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	m := full()
	b, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tag := range []byte{0, 60, 120, 150, 170, 250} {
		b = append(b, tag, 0, 3, 0, 0, 0, 'x', 'y', 'z')
	}
	got, err := wire.Decode(b)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestMessagesThatAreTooLongAreRefused(t *testing.T) {
	for name, m := range map[string]wire.Message{
		"bytes":    {Record: make([]byte, wire.MaxMessage)},
		"elements": {Create: make([]string, wire.MaxList+1)},
	} {
		if _, err := m.Append(nil); !errors.Is(err, wire.ErrTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := wire.Decode(make([]byte, wire.MaxMessage+1)); !errors.Is(err, wire.ErrMalformed) {
		t.Error(err)
	}
}

func TestExitRecordThatIsNotWholeIsRefused(t *testing.T) {
	m := wire.Message{Type: wire.Exited, Version: wire.Version, ID: "a", Code: 3, EndAt: 9, Reason: "x"}
	b, err := wire.AppendExit(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := wire.DecodeExit(b); err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i := range b {
		if _, err := wire.DecodeExit(b[:i]); err == nil {
			t.Errorf("%d of %d bytes are taken", i, len(b))
		}
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, err := wire.DecodeExit(c); err == nil {
			t.Errorf("byte %d changed is taken", i)
		}
	}
	if _, err := wire.AppendExit(nil, wire.Message{Text: strings.Repeat("x", wire.MaxExit)}); err == nil {
		t.Error("a record of any length is written")
	}
}

// What is read and written again is the same message.
func FuzzDecode(f *testing.F) {
	m := full()
	b, err := m.Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add(b[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := wire.Decode(b)
		if err != nil {
			return
		}
		m.Version = wire.Version
		c, err := m.Append(nil)
		if err != nil {
			t.Fatal(err) // never longer than what was read
		}
		again, err := wire.Decode(c)
		if len(m.Record) == 0 {
			m.Record = nil
		}
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%+v, %+v, %v", m, again, err)
		}
	})
}
