//go:build linux

package main

// stampSize is the length of a time stamp: 2006-01-02T15:04:05.000000000Z.
const stampSize = 30

const (
	daySeconds = 24 * 60 * 60
	second     = 1_000_000_000
)

// appendTime appends a time in the format of RFC 3339, in UTC and with nine digits of nanoseconds.
// A time before 1970 becomes the start of 1970.
func appendTime(b []byte, nanoseconds int64) []byte {
	nanoseconds = max(nanoseconds, 0)
	seconds := nanoseconds / second
	year, month, day := civil(seconds / daySeconds)
	rest := seconds % daySeconds
	b = digits(b, year, 4)
	b = digits(append(b, '-'), month, 2)
	b = digits(append(b, '-'), day, 2)
	b = digits(append(b, 'T'), rest/3600, 2)
	b = digits(append(b, ':'), rest/60%60, 2)
	b = digits(append(b, ':'), rest%60, 2)
	b = digits(append(b, '.'), nanoseconds%second, 9)
	return append(b, 'Z')
}

func digits(b []byte, n int64, width int) []byte {
	for range width {
		b = append(b, 0)
	}
	for i := len(b) - 1; width > 0; i, width = i-1, width-1 {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

// civil returns the date of a day that is counted from 1970. It counts years from March on, so
// that the leap day is the last day of a year.
func civil(days int64) (year, month, day int64) {
	days += 719468 // since 0000-03-01
	era := days / 146097
	left := days % 146097
	inEra := (left - left/1460 + left/36524 - left/146096) / 365
	left -= 365*inEra + inEra/4 - inEra/100
	fromMarch := (5*left + 2) / 153
	day = left - (153*fromMarch+2)/5 + 1
	month = (fromMarch+2)%12 + 1
	year = era*400 + inEra
	if month <= 2 {
		year++
	}
	return year, month, day
}

// parseTime parses a time in the format of appendTime at the beginning of a line.
func parseTime(line []byte) (int64, bool) {
	const shape = "0000-00-00T00:00:00.000000000Z"
	if len(line) < stampSize {
		return 0, false
	}
	var fields [7]int64
	at := 0
	for i := range stampSize {
		switch c := line[i]; {
		case shape[i] == '0' && c >= '0' && c <= '9':
			fields[at] = fields[at]*10 + int64(c-'0')
		case shape[i] != '0' && c == shape[i]:
			at++
		default:
			return 0, false
		}
	}
	year, month, day := fields[0], fields[1], fields[2]
	if year < 1970 || year > 2260 || month < 1 || month > 12 || day < 1 || day > 31 || fields[3] > 23 || fields[4] > 59 || fields[5] > 59 {
		return 0, false
	}
	if month <= 2 {
		year--
	}
	era, inEra := year/400, year%400
	days := era*146097 + inEra*365 + inEra/4 - inEra/100 + (153*((month+9)%12)+2)/5 + day - 1 - 719468
	return (days*daySeconds+fields[3]*3600+fields[4]*60+fields[5])*second + fields[6], true
}
