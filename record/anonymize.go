package record

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
)

// Anonymize replaces the names, IDs and addresses in entries by keyed hashes, and drops texts.
// Within one call, equal names get equal hashes. The key is random and not stored, so another call
// gives different hashes.
func Anonymize(entries []Entry) []Entry {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	a := anonymizer{key: key, seen: map[string]string{}}
	out := make([]Entry, len(entries))
	for i := range entries {
		e := entries[i]
		fact := kinds[e.Fact.kind()]()
		// A copy, whose lists are not shared.
		reflect.ValueOf(fact).Elem().Set(a.of(reflect.ValueOf(e.Fact).Elem(), ""))
		e.Fact = nil
		e = a.of(reflect.ValueOf(e), "").Interface().(Entry)
		e.Fact = fact
		out[i] = e
	}
	return out
}

type anonymizer struct {
	key  []byte
	seen map[string]string
}

// of returns a copy of a value with its strings replaced. The tag "is" of a field says how its
// string is replaced.
func (a *anonymizer) of(v reflect.Value, is string) reflect.Value {
	switch v.Kind() {
	case reflect.String:
		out := reflect.New(v.Type()).Elem()
		out.SetString(a.text(v.String(), is))
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Type.Kind() != reflect.Interface {
				out.Field(i).Set(a.of(v.Field(i), f.Tag.Get("is")))
			}
		}
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(a.of(v.Index(i), is))
		}
		return out
	default: // numbers, and pointers to numbers
		return v
	}
}

func (a *anonymizer) text(s, is string) string {
	switch {
	case s == "" || is == "word":
		return s
	case is != "name" && is != "id" && is != "address":
		return ""
	}
	if hash, ok := a.seen[is+s]; ok {
		return hash
	}
	mac := hmac.New(sha256.New, a.key)
	_, _ = mac.Write([]byte(s))
	hash := is + "-" + hex.EncodeToString(mac.Sum(nil)[:5])
	a.seen[is+s] = hash
	return hash
}
