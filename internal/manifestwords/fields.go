package manifestwords

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodewright/nodewright/internal/callerror"
	"github.com/nodewright/nodewright/internal/quantity"
)

// Meant returns the field name that the author of a manifest probably meant by the unknown
// field at path. object is the type of the manifest. It returns "" if no field has a similar
// name.
func Meant(object reflect.Type, path string) string {
	at := object
	all := steps(path)
	if len(all) == 0 {
		return ""
	}
	for _, step := range all[:len(all)-1] {
		at = elem(at)
		if at.Kind() == reflect.Slice || at.Kind() == reflect.Map {
			at = at.Elem()
			continue
		}
		if at.Kind() != reflect.Struct {
			return ""
		}
		next, ok := fields(at)[step]
		if !ok {
			return ""
		}
		at = next
	}
	if at = elem(at); at.Kind() != reflect.Struct {
		return ""
	}
	names := fields(at)
	candidates := make([]string, 0, len(names))
	for name := range names {
		candidates = append(candidates, name)
	}
	return Nearest(all[len(all)-1], candidates)
}

func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fields returns the fields of a struct by their JSON names, including those of embedded
// structs.
func fields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && (f.Anonymous || strings.Contains(options, "inline")):
			if e := elem(f.Type); e.Kind() == reflect.Struct {
				for n, ft := range fields(e) {
					out[n] = ft
				}
			}
		case name != "":
			out[name] = f.Type
		}
	}
	return out
}

// Nearest returns the candidate that a person most likely meant by a word, or "" if none is
// similar. It ignores the case of letters. It prefers the candidate with the fewest different
// letters: at most three, and at most a third of the word. If there is none, it returns the
// shortest candidate that begins with the word.
func Nearest(word string, candidates []string) string {
	slices.Sort(candidates)
	lower := strings.ToLower(word)
	best, least := "", 1+min(max(1, len(word)/3), 3)
	for _, c := range candidates {
		if d := distance(lower, strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	if best != "" || len(word) < 3 {
		return best
	}
	for _, c := range candidates {
		if strings.HasPrefix(strings.ToLower(c), lower) && (best == "" || len(c) < len(best)) {
			best = c
		}
	}
	return best
}

// distance returns the number of edits that turn one word into the other (optimal string
// alignment). An edit inserts, removes or replaces a letter, or swaps two neighbouring letters.
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	rows := [3][most + 1]int{}
	for j := range len(b) + 1 {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, now := &rows[(i+2)%3], &rows[i%3], &rows[(i+1)%3]
		now[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			now[j] = min(last[j]+1, now[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}

// Decoding returns the path of the field at which the JSON decoder failed, and words that describe
// the error and a correct value. err is the decoder's error for raw. ok is false if err is of another
// kind.
func Decoding(raw []byte, err error) (path, words string, ok bool) {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		at, value := valueAt(raw, t.Offset)
		if at == "" {
			return "", "", false
		}
		return at, wrongType(value, t.Type), true
	}
	if strings.Contains(err.Error(), "quantities must match") || strings.Contains(err.Error(), "unable to parse quantity") {
		return wrongQuantity(raw)
	}
	return "", "", false
}

// wrongType describes a JSON value of the wrong type, and a correct value of the type want.
func wrongType(value string, want reflect.Type) string {
	shown := callerror.Cut(value, 80)
	text := strings.Trim(value, `"`)
	isText := strings.HasPrefix(value, `"`)
	switch kind := elem(want).Kind(); {
	case kind == reflect.String && !strings.HasPrefix(value, "{") && !strings.HasPrefix(value, "["):
		return fmt.Sprintf("%s is not a string; write %q, in quotes", shown, text)
	case kind >= reflect.Int && kind <= reflect.Uint64:
		if _, err := strconv.ParseInt(text, 10, 64); err == nil && isText {
			return fmt.Sprintf("%s is a string; write %s, without quotes", shown, text)
		}
		return shown + " is not a number; want an integer"
	case kind == reflect.Bool:
		if isText && (text == "true" || text == "false") {
			return fmt.Sprintf("%s is a string; write %s, without quotes", shown, text)
		}
		return shown + " is neither true nor false"
	case kind == reflect.Slice:
		return shown + ` is not a list; begin each entry with "- "`
	default:
		return shown + " is not an object; want keys with values"
	}
}

// valueAt returns the path and the text of the first JSON value that ends at or after an offset.
func valueAt(raw []byte, offset int64) (path, value string) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	find(dec, "", offset, &path, &value)
	return strings.TrimPrefix(path, "."), value
}

// find reads one value, whose path is at. It returns true when it has reached the offset, and then
// has set path and value. It also returns true after an error of the decoder.
func find(dec *json.Decoder, at string, offset int64, path, value *string) bool {
	token, err := dec.Token()
	if err != nil {
		return true
	}
	end := dec.InputOffset()
	switch token {
	case json.Delim('{'):
		if end >= offset {
			*path, *value = at, "{...}"
			return true
		}
		for dec.More() {
			key, err := dec.Token()
			if err != nil || find(dec, fmt.Sprintf("%s.%v", at, key), offset, path, value) {
				return true
			}
		}
	case json.Delim('['):
		if end >= offset {
			*path, *value = at, "[...]"
			return true
		}
		for i := 0; dec.More(); i++ {
			if find(dec, fmt.Sprintf("%s[%d]", at, i), offset, path, value) {
				return true
			}
		}
	default:
		if end >= offset {
			text, _ := json.Marshal(token)
			*path, *value = at, string(text)
			return true
		}
		return false
	}
	_, err = dec.Token() // the end of the object or the list
	return err != nil
}

var (
	inBytes = regexp.MustCompile(`^([0-9.]+) ?([kKmMgGtT])i?[bB]$`)
	comma   = regexp.MustCompile(`^([0-9]+),([0-9]+)$`)
)

// wrongQuantity returns the path of the first field with an invalid quantity, and words that describe
// the error and a correct value.
func wrongQuantity(raw []byte) (path, words string, ok bool) {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return "", "", false
	}
	path, text, ok := badAmount("", "", v)
	if !ok {
		return "", "", false
	}
	words = fmt.Sprintf("%.80q is not a quantity; want a number such as 500m, 1.5, 128M or 128Mi", text)
	if m := comma.FindStringSubmatch(text); m != nil {
		words = fmt.Sprintf("%q: write %s.%s", text, m[1], m[2])
		if n, err := strconv.ParseFloat(m[1]+"."+m[2], 64); err == nil {
			words += fmt.Sprintf(" or %.0fm", n*1000)
		}
	}
	if m := inBytes.FindStringSubmatch(text); m != nil {
		unit := strings.ToUpper(m[2])
		words = fmt.Sprintf("%q: write %s%s or %s%si", text, m[1], strings.Replace(unit, "K", "k", 1), m[1], unit)
	}
	return strings.TrimPrefix(path, "."), words, true
}

// amounts lists, first, five objects whose values are quantities and, then, fields that are
// quantities themselves.
var amounts = []string{"requests", "limits", "capacity", "overhead", "allocatedResources", "sizeLimit", "divisor"}

// badAmount returns the path and the text of the first invalid quantity in v. path is the
// path of v. field is the name of v, or the name in amounts that makes v a quantity.
func badAmount(path, field string, v any) (at, text string, found bool) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			in := key
			if _, isText := v[key].(string); isText && slices.Contains(amounts[:5], field) {
				in = field
			}
			if at, text, found = badAmount(path+"."+key, in, v[key]); found {
				return at, text, true
			}
		}
	case []any:
		for i := range v {
			if at, text, found = badAmount(fmt.Sprintf("%s[%d]", path, i), "", v[i]); found {
				return at, text, true
			}
		}
	case string:
		if slices.Contains(amounts, field) {
			if _, err := quantity.Parse(v); err != nil {
				return path, v, true
			}
		}
	}
	return "", "", false
}
