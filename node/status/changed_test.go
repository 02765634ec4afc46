package status

import (
	"errors"
	"net/netip"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Whatever changes in the inputs, down to the fields of the API's types, is a change.
func TestEveryInputCounts(t *testing.T) {
	a, b := filled(1), filled(1)
	if !sameInputs(a, b) {
		t.Fatal("two of the same are not the same")
	}
	leaves := 0
	eachLeaf(t, reflect.ValueOf(b).Elem(), "Inputs", func(path string) {
		leaves++
		if sameInputs(a, b) {
			t.Errorf("%s: another value is no change", path)
		}
	})
	if leaves < 50 {
		t.Errorf("%d fields were changed, want all", leaves)
	}
	if !sameInputs(a, b) {
		t.Error("the last change was not taken back")
	}
}

// Errors are what they say, and no list an empty one, except where that means something.
func TestWhatIsNoChange(t *testing.T) {
	a := Inputs{FactsErr: errors.New("x"), Warnings: []string{}, Problems: Problems{Runtime: errors.New("y")}}
	b := Inputs{FactsErr: errors.New("x"), Problems: Problems{Runtime: errors.New("y")}}
	if !sameInputs(&a, &b) {
		t.Error("errors with the same texts, or no list and an empty one, are a change")
	}
	b.Declared = []string{}
	if sameInputs(&a, &b) {
		t.Error("features that are declared to be none are no change from features that are left alone")
	}
}

// filled has a value in every field.
func filled(n int) *Inputs {
	in := &Inputs{}
	fill(reflect.ValueOf(in).Elem(), n)
	return in
}

var (
	errorType    = reflect.TypeFor[error]()
	addrType     = reflect.TypeFor[netip.Addr]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

// fill sets what v holds to values that differ for another n.
func fill(v reflect.Value, n int) {
	switch {
	case v.Type() == errorType:
		v.Set(reflect.ValueOf(errors.New(string(rune('a' + n)))))
		return
	case v.Type() == addrType:
		v.Set(reflect.ValueOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})))
		return
	case v.Type() == quantityType:
		v.Set(reflect.ValueOf(*resource.NewQuantity(int64(n), resource.DecimalSI)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, n)
		v.SetMapIndex(reflect.ValueOf(v1.ResourceCPU), value)
	case reflect.String:
		v.SetString(string(rune('a' + n)))
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	default:
		v.SetInt(int64(n))
	}
}

// eachLeaf changes every value in v in turn, calls changed, and changes it back.
func eachLeaf(t *testing.T, v reflect.Value, path string, changed func(path string)) {
	t.Helper()
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	defer func() { v.Set(was) }()
	special := v.Type() == errorType || v.Type() == addrType || v.Type() == quantityType
	switch {
	case !special && v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			eachLeaf(t, v.Field(i), path+"."+v.Type().Field(i).Name, changed)
		}
		return
	case v.Kind() == reflect.Pointer:
		whole := reflect.New(v.Type().Elem())
		whole.Elem().Set(v.Elem())
		v.Set(whole) // what it points to is not changed for others
		eachLeaf(t, v.Elem(), path, changed)
		v.SetZero()
	case v.Kind() == reflect.Slice:
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, 1), v))
		eachLeaf(t, v.Index(0), path+"[0]", changed)
		v.SetZero()
	default:
		fill(v, 2)
	}
	changed(path)
}
