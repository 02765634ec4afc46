s|^func Now() Time {|var wallShift atomic.Int64\
\
// ShiftWall sets how far the wall clock is from the system's, in seconds. Monotonic\
// readings stay; bubbles have them too.\
func ShiftWall(d Duration) { wallShift.Store(int64(d / Second)) }\
\
&|
s|^	sec, nsec, mono := runtimeNow()|&\
	if mono == 0 \&\& runtimeIsBubbled() {\
		mono = startNano + 1 + (sec-946684800)*1e9 + int64(nsec)\
	}\
	sec += wallShift.Load()|
s|^	_ "unsafe".*|	"sync/atomic"\
&|
