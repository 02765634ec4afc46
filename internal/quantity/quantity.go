// Package quantity parses the texts of Kubernetes' quantities that come from
// outside: of manifests, annotations, flags and the names of huge pages. The
// parser of Kubernetes takes any exponent and any number of digits, and
// computes with 1e-2000000000 until the machine is out of memory.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxExponent is the largest exponent that is parsed, and its negative the
	// smallest. The largest suffix, Ei, is less than 1e19.
	MaxExponent = 99
	// MaxLength is the longest text that is parsed, in bytes. The largest
	// number that anything can count here has 20 digits.
	MaxLength = 128
)

// ErrTooCostly means that a text is not parsed, since that might take for ever.
var ErrTooCostly = fmt.Errorf("want a quantity of at most %d bytes with an exponent from -%d to %d", MaxLength, MaxExponent, MaxExponent)

// Parse parses a quantity. A text that is no [Cheap] one is an [ErrTooCostly].
func Parse(s string) (resource.Quantity, error) {
	if !Cheap(s) {
		return resource.Quantity{}, ErrTooCostly
	}
	return resource.ParseQuantity(s)
}

// Cheap reports whether Kubernetes' parser is soon done with s, whether it is
// a quantity or not.
func Cheap(s string) bool {
	if len(s) > MaxLength {
		return false
	}
	i := strings.LastIndexAny(s, "eE")
	if i < 0 || i == len(s)-1 {
		return true // a suffix: 1E is an exabyte
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return !errors.Is(err, strconv.ErrRange)
	}
	return n >= -MaxExponent && n <= MaxExponent
}
