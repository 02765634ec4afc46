package resources

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// block is the unit of ranges and the default length of a range: a pod without a user namespace has
// at least this number of IDs (KEP-127). The first block is the node's.
const block = 1 << 16

// space has the IDs for pods, in ranges of one length.
type space struct {
	length     uint32
	first, end uint64 // the first ID, and the one after the last
}

// defaultSpace has all ranges except the first.
func defaultSpace(length uint32) space { return space{length, uint64(length), 1 << 32} }

// count returns the number of ranges.
func (s space) count() uint64 {
	if s.end < s.first {
		return 0
	}
	return (s.end - s.first) / uint64(s.length)
}

// at returns the first ID of a range.
func (s space) at(n uint64) uint32 { return uint32(s.first + n*uint64(s.length)) }

// idRange is the range of host IDs to which the user namespace of one pod is mapped.
type idRange struct {
	first, length uint32
	key           string     // key of its record
	saved         bool       // the store has the record
	busy          *userIDsOp // running call of the store for its record
}

// blocks calls fn with the first ID of each block of a range.
func (r *idRange) blocks(fn func(uint32)) {
	for at := uint64(r.first); at < uint64(r.first)+uint64(r.length); at += block {
		fn(uint32(at))
	}
}

// userIDsOp is a running call of the store. err is set before done is closed.
type userIDsOp struct {
	done chan struct{}
	err  error
}

// ranges says which host IDs belong to which pod.
type ranges struct {
	space space
	taken map[uint32]types.UID // owners of the blocks, by first ID of the block
	of    map[types.UID]*idRange
	// lost has the pods whose range is unknown, since their record is damaged.
	lost map[types.UID]bool
}

func newRanges(s space) *ranges {
	return &ranges{space: s, taken: map[uint32]types.UID{}, of: map[types.UID]*idRange{}, lost: map[types.UID]bool{}}
}

func (r *ranges) add(uid types.UID, first, length uint32, key string, saved bool) *idRange {
	out := &idRange{first: first, length: length, key: key, saved: saved}
	out.blocks(func(at uint32) { r.taken[at] = uid })
	r.of[uid] = out
	return out
}

// free reports whether no block of a range is allocated.
func (r *ranges) free(first uint32) bool {
	free := true
	(&idRange{first: first, length: r.space.length}).blocks(func(at uint32) {
		_, taken := r.taken[at]
		free = free && !taken
	})
	return free
}

// take allocates the lowest free range. While the range of any pod is unknown, it allocates the
// highest free range instead, since an unknown range is among the lowest.
func (r *ranges) take(uid types.UID) (*idRange, error) {
	count := r.space.count()
	for n := range count {
		first := r.space.at(n)
		if len(r.lost) > 0 {
			first = r.space.at(count - 1 - n)
		}
		if r.free(first) {
			return r.add(uid, first, r.space.length, keyOf(uid, first, r.space.length), false), nil
		}
	}
	return nil, fmt.Errorf("all %d ranges of user IDs are taken", count)
}

func (r *ranges) drop(uid types.UID) {
	delete(r.lost, uid)
	is := r.of[uid]
	if is == nil {
		return
	}
	is.blocks(func(at uint32) {
		if r.taken[at] == uid { // two records may name one range
			delete(r.taken, at)
		}
	})
	delete(r.of, uid)
}

// inKey separates a pod's UID and the number of its range in a key.
const inKey = ".ids-"

// keyOf returns the key of a pod's record. It contains the range, so that a damaged record can be
// restored: the number of the first block, and the number of blocks if that is not 1.
func keyOf(uid types.UID, first, length uint32) string {
	key := string(uid) + inKey + strconv.FormatUint(uint64(first/block), 10)
	if length != block {
		key += "-" + strconv.FormatUint(uint64(length/block), 10)
	}
	return key
}

// parseKey parses a key. A key of an earlier version has only the UID: then first is 0.
func parseKey(key string) (uid types.UID, first, length uint32) {
	if at := strings.LastIndex(key, inKey); at >= 0 {
		text, count, more := strings.Cut(key[at+len(inKey):], "-")
		n, err := strconv.ParseUint(text, 10, 16)
		blocks := uint64(1)
		if more && err == nil {
			blocks, err = strconv.ParseUint(count, 10, 16)
		}
		uid, first, length = types.UID(key[:at]), uint32(n)*block, uint32(blocks)*block
		if err == nil && whole(first, length) && keyOf(uid, first, length) == key {
			return uid, first, length
		}
	}
	return types.UID(key), 0, 0
}

// whole reports whether a range is possible: it consists of complete blocks, and is not
// in the node's first block.
func whole(first, length uint32) bool {
	return first != 0 && length != 0 && first%block == 0 && length%block == 0 && uint64(first)+uint64(length) <= 1<<32
}

// lostValue is stored under the UID of a pod whose range is unknown.
var lostValue = []byte("{}")

// savedRange is the stored record of a pod.
type savedRange struct {
	First  uint32 `json:"first"`
	Length uint32 `json:"length"`
}

func encode(first, length uint32) []byte {
	return fmt.Appendf(nil, `{"first":%d,"length":%d}`, first, length)
}

func decodeUserIDs(value []byte) (first, length uint32, err error) {
	var s savedRange
	if err := json.Unmarshal(value, &s); err != nil {
		return 0, 0, err
	}
	if !whole(s.First, s.Length) {
		return 0, 0, fmt.Errorf("range of %d IDs from %d on; want multiples of %d that are not 0", s.Length, s.First, block)
	}
	return s.First, s.Length, nil
}
