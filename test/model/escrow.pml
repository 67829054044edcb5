/*
 * The escrow protocol of the ledger, for the model checker Spin. test/model/README.md says what it covers and how to run it.
 *
 * One account. Replicas draw from its package (or its balance) ahead of requests and grant requests from memory. One step of the
 * model is one atomic act: of a replica's memory, or one Postgres transaction (with SPLIT, a draw is two: it reads, then it commits).
 * The checker runs every order of the steps. Every quantity is bounded, so it visits all states.
 *
 * Sizes (-D…; the defaults are below) and faults (-DF_…; each breaks one rule of the protocol, and an assertion must fail):
 *   F_VALID_FOREVER      what was drawn may be granted for ever
 *   F_VALID_FROM_ANSWER  validity starts when the answer arrives, not before the draw is sent
 *   F_ANSWER_UNBOUNDED   a request that the database granted starts, however late the answer is handled
 *   F_NO_LEASE_BOUND     the replica does not compare its lease (with V > L: validity is longer than the lease)
 *   F_OTHER_LEASE        an answer under the previous lease counts when a new one was taken meanwhile
 *   F_KEY_EPOCH          a cached key may be older than the escrow that it is granted from
 *   F_KEPT_EPOCH         a draw acknowledges a revocation for idle units that it keeps
 *   F_RENEW_ANYWAY       an answer renews what is kept, although it says that the package has ended
 *   F_REVOKE_AT_ONCE     a revocation does not wait for replicas with idle units
 *   F_NUMBERS            a draw that was given up may run after a later one
 *   F_LATE_ANSWER        the answer of a draw that was given up counts
 *   F_TWO_BATCHES        ends of requests are sent while a draw of the account is under way, and the other way round
 *   F_ALREADY            an end that had to be repeated does not make the replica draw again
 *   F_UNKNOWN_CLEARED    the answer of a draw clears what the replica learned while it was under way
 *   F_KEEP_RAISES        a draw sets the row to what the replica says that it keeps, also upwards
 *   F_KEEP_FORGETS       a draw does not count settlements that are on their way in another transaction
 *   F_LATE_NEW_ROW       a late settlement takes its unit from the row of the replica's new lease
 *   F_LATE_KEY           a late settlement counts although its key has nothing left of its daily limit
 *   F_IDLE_UNNUMBERED    an end that was given up writes how much was idle when it was sent, also after a later draw
 *   F_NO_RECEIPT         a settlement that comes twice counts twice
 *   F_REFUSE_BLINDLY     a request is refused without a look at what lies idle
 *   F_REUSE              a unit that a failed request frees is granted again, and the row does not say that it was idle
 *   F_SCAN_ONCE          the reaper looks only once for rows of a lease that has ended
 *   F_DAY                the day's end is ignored in memory
 *   F_SNAPSHOT           a draw reads before it has the account's lock (SPLIT)
 */
#ifndef R
#define R 2            /* replicas */
#endif
#ifndef SPARE
#define SPARE 0        /* leases for processes that start again or have lost theirs */
#endif
#ifndef N
#define N 2            /* the limit: units a day, or the balance */
#endif
#ifndef NREQ
#define NREQ 2         /* requests, at most 3 */
#endif
#ifndef AHEAD
#define AHEAD 2        /* how much is drawn ahead, at most */
#endif
#ifndef V
#define V 1            /* validity of what was drawn, in ticks */
#endif
#ifndef L
#define L 1            /* lease, in ticks */
#endif
#ifndef T
#define T 1            /* the clock stops here */
#endif
#ifndef LOST
#define LOST 0         /* draws whose answer is lost or given up */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef D
#define D 255          /* the tick at which the second day begins */
#endif
#ifndef CEILING
#define CEILING 0      /* daily limit of the key that has one; 0: no such key */
#endif
#if D < 255
#define DAYS 2
#else
#define DAYS 1
#endif

#define LEASES (R + SPARE)
#define NONE LEASES

/* Revocations. KEY and PACKAGE take the account's lock; TENANT does not, and waits for V. */
#define KEY 1
#define PACKAGE 2
#define TENANT 3
#ifndef REVOKE
#define REVOKE 0
#endif

/* ---------------------------------------------------------------- state */

mtype = { NEW, WAITS, CALLS, ENDS, SPOOLED, DONE, REFUSED, BUSY, GONE };

/* A request. CALLS: the provider works. ENDS: settlement or release is on its way. SPOOLED: it waits on disk. BUSY: 503. */
typedef Request {
  mtype state = NEW;
  byte at;             /* replica */
  byte lease;
  bit special;         /* its key is the one that is revoked, or the one with a ceiling */
  bit day;
  byte charge;         /* 0: release */
  bit receipt;
  bit repeated         /* the answer of its end was lost */
};
Request q[NREQ];

/* The database: what is taken of the account, what settled requests used of it (receipts), and one escrow row a lease (a row a day in SQL). */
byte taken[DAYS], settled[DAYS];
byte key_taken, key_settled;
typedef Row {
  bit exists; byte units[DAYS]; byte idle[DAYS]; byte key; bit epoch; bit recalled;
  bit unheard                                                        /* the answer of its last draw did not count: its replica was not told */
};
Row row[LEASES];
bit ended[LEASES];
byte ends_at[LEASES];
byte leases_taken = R;
bit epoch;             /* one revocation at most: 1 = it has committed */
byte lock;             /* SPLIT: who has the account's lock */

/* A transaction: ends of requests, then a draw. Masks have a bit for each request. */
typedef Tx {
  bit open; bit begun; bit done;
  byte lease; byte age;                                              /* age: ticks since it was sent, at most V */
  bit overtaken;                                                     /* a draw with a higher number has run */
  bit only_ends;                                                     /* there is no draw in it */
  byte ends;                                                         /* requests whose ends ride along */
  byte keep[DAYS]; byte keep_key; byte idle; bit idle_day; bit epoch; /* what the replica keeps */
  byte requests; byte ask;                                           /* to be decided; to be drawn ahead */
  bit saw_ended; bit saw_epoch;                                      /* read when it began */
  byte granted; byte refused; byte got; bit day; byte good; bit new_epoch; bit stands; bit lease_ended; /* the answer */
  bit after_revocation                                               /* it decided after the revocation's commit */
};
Tx cur[R];             /* the replica waits for it */
Tx lost[R];            /* the replica has given it up; the server may still run it */

typedef Memory {
  bit alive; bit draining; byte lease; byte bound;                   /* bound: the replica's own end of its lease */
  byte idle; bit day; byte until; bit epoch; bit told;               /* told: the revocation's message has arrived */
  bit unknown;                                                       /* the row may have more than the replica accounts for: it draws again */
  bit surprised                                                      /* a statement that was given up made the row */
};
Memory m[R];

byte now, revoked_at;
bit revocation_returned;
byte losses = LOST, crashes = CRASHES;
byte under_way_at_reaping, late;  /* counts of requests */
#ifdef F_SCAN_ONCE
bit scanned[LEASES];
#endif
hidden byte i, d, l, n, today, scarce, writes, its_idle;

/* ---------------------------------------------------------------- words */

#define has(mask, i)  (((mask) >> (i)) & 1)
#ifdef MONEY
#define NEED(i)       (2 + ((i) & 1))   /* nano-USD, so to speak */
#else
#define NEED(i)       1
#endif
#if DAYS == 2
#define TODAY         (now >= D)
#else
#define TODAY         0
#endif
#if DAYS == 2 && defined(CARRYOVER)
#define LIMIT(d)      (N * (TODAY + 1))
#define LEFT(d)       (LIMIT(d) - taken[0] - taken[1])
#else
#define LIMIT(d)      N
#define LEFT(d)       (N - taken[d])
#endif
#if DAYS == 2
#define ROW_UNITS(l)  (row[l].units[0] + row[l].units[1])
#define ROW_IDLE(l)   (row[l].idle[0] + row[l].idle[1])
#else
#define ROW_UNITS(l)  row[l].units[0]
#define ROW_IDLE(l)   row[l].idle[0]
#endif
#if NREQ == 1
#define ANY(f, r)     (f(0, r))
#define SUM(f, r)     (f(0, r))
#elif NREQ == 2
#define ANY(f, r)     (f(0, r) || f(1, r))
#define SUM(f, r)     (f(0, r) + f(1, r))
#else
#define ANY(f, r)     (f(0, r) || f(1, r) || f(2, r))
#define SUM(f, r)     (f(0, r) + f(1, r) + f(2, r))
#endif
#if LEASES == 2
#define ANY_ROW(f, x) (f(0, x) || f(1, x))
#elif LEASES == 3
#define ANY_ROW(f, x) (f(0, x) || f(1, x) || f(2, x))
#else
#define ANY_ROW(f, x) (f(0, x) || f(1, x) || f(2, x) || f(3, x))
#endif
#if R == 2
#define ANY_REPLICA(f, x) (f(0, x) || f(1, x))
#else
#define ANY_REPLICA(f, x) (f(0, x) || f(1, x) || f(2, x))
#endif

/* Whether the revocation concerns request i. */
#if REVOKE == KEY
#define concerns(i)   q[i].special
#elif REVOKE == 0
#define concerns(i)   0
#else
#define concerns(i)   1
#endif
#if CEILING > 0
#define limited(i)    q[i].special
#else
#define limited(i)    0
#endif
#ifdef SPLIT
#define unlocked      (lock == 0)
#else
#define unlocked      1
#endif

/* Whether replica r may grant from memory now, and request i of it. A cached key is as of epoch 0 here: the worst case. */
#ifdef F_VALID_FOREVER
#define in_time(r)    1
#else
#define in_time(r)    (now < m[r].until)
#endif
#ifdef F_NO_LEASE_BOUND
#define in_lease(r)   1
#else
#define in_lease(r)   (now < m[r].bound)
#endif
#if REVOKE == KEY && !defined(F_KEY_EPOCH)
#define key_fits(i, r) (!q[i].special || m[r].epoch == 0)
#else
#define key_fits(i, r) 1
#endif
#define grantable(i, r) (!limited(i) && m[r].idle >= NEED(i) && in_time(r) && in_lease(r) && m[r].epoch >= m[r].told && key_fits(i, r))
#define in_draw(i, r) (cur[r].open && has(cur[r].requests, i))
#define waits(i, r)   (q[i].state == WAITS && q[i].at == r)
#define under_way(i, l) (q[i].lease == l && (q[i].state == CALLS || q[i].state == ENDS || q[i].state == SPOOLED))
/* Its process is dead, but a statement that this had sent may still end it. */
#define carries(r, i) (lost[r].open && !lost[r].done && has(lost[r].ends, i))
#define left_behind(i, l) (q[i].lease == l && q[i].state == GONE && ANY_REPLICA(carries, i))
#define ends_wait(i, r) (q[i].at == r && (q[i].state == ENDS || q[i].state == SPOOLED))
#define kept_for(i, r) (under_way(i, m[r].lease) && q[i].at == r -> NEED(i) : 0)

/* Rows of others with idle units; those of them that were not asked yet. */
#define idle_elsewhere(l, x)   ((l) != (x) && row[l].exists && ROW_IDLE(l) > 0)
#define unasked_elsewhere(l, x) (idle_elsewhere(l, x) && !row[l].recalled)
/* A waiting request is worth another draw: the database would not answer "recall" again. Polls in vain change nothing. */
#define worth_it(i, r) (waits(i, r) && !grantable(i, r) && (LEFT(TODAY) >= NEED(i) || m[r].idle > 0 || (epoch && concerns(i)) || \
  (limited(i) && key_taken >= CEILING) || !ANY_ROW(idle_elsewhere, m[r].lease) || ANY_ROW(unasked_elsewhere, m[r].lease)))

#define my_row        row[m[r].lease]
#define must_return(r) (my_row.recalled || m[r].epoch < m[r].told || m[r].draining || m[r].day != TODAY)
/* A recalled row may say that something is idle that is in use: the next draw corrects it. */
#define needs_draw(r) (m[r].unknown || (my_row.recalled && ROW_IDLE(m[r].lease) > m[r].idle))
/* The end of request i is under way alone: an account is in one transaction of a replica at a time. */
#ifdef F_TWO_BATCHES
#define end_open(i, r) 0
#else
#define end_open(i, r) (ends_wait(i, r) && q[i].receipt && !q[i].repeated)
#endif
#define owns(r, l)    (m[r].alive && m[r].lease == (l))
#define may_draw(r)   (m[r].alive && m[r].lease < NONE && !cur[r].open && !ANY(end_open, r))
#define end_unheard(i, r) (ends_wait(i, r) && q[i].receipt)
#define exact(r, l)   (owns(r, l) && !m[r].unknown && !m[r].surprised && !cur[r].open && !ANY(end_unheard, r))
#define orphan_idle(l, x) (row[l].exists && ROW_IDLE(l) > 0 && !ANY_REPLICA(owns, l))
#define unacknowledged(l, x) (row[l].exists && ROW_IDLE(l) > 0 && row[l].epoch < epoch)

/* ---------------------------------------------------------------- assertions */

/* After each commit: the counters are the sum of the rows, and nothing is oversold. */
inline check_books() {
  for (d : 0 .. DAYS - 1) {
    n = 0;
    for (l : 0 .. LEASES - 1) { n = n + row[l].units[d] }
    assert(n + settled[d] == taken[d]);
    assert(taken[d] <= N * DAYS)
  }
  assert(LEFT(0) <= LIMIT(0) && LEFT(DAYS - 1) <= LIMIT(DAYS - 1));
  assert(LEFT(0) >= 0 && LEFT(DAYS - 1) >= 0);
#if CEILING > 0
  n = 0;
  for (l : 0 .. LEASES - 1) { n = n + row[l].key }
  assert(n + key_settled == key_taken);
  assert(key_taken <= CEILING)
#endif
  ; skip
}

/* Every request under way and every idle unit in memory is covered by the row of its lease, until the reaper has been there. */
inline check_cover() {
  for (l : 0 .. LEASES - 1) {
    if
    :: row[l].exists ->
       for (d : 0 .. DAYS - 1) {
         n = 0;
         for (i : 0 .. NREQ - 1) { if :: under_way(i, l) && !q[i].receipt && q[i].day == d -> n = n + NEED(i) :: else fi }
         for (i : 0 .. R - 1) { if :: owns(i, l) && m[i].day == d -> n = n + m[i].idle :: else fi }
         assert(n <= row[l].units[d]);
         /* And it has no more than that, unless the replica knows that it may. */
         if :: ANY_REPLICA(exact, l) -> assert(n == row[l].units[d]) :: else fi;
         /* It never says that less is idle than its replica may grant: refusals and changes of rights rely on that. */
         for (i : 0 .. R - 1) { if :: owns(i, l) && m[i].day == d -> assert(m[i].idle <= row[l].idle[d]) :: else fi }
       }
    :: else
    fi
  };
  skip
}

/* A provider is called for request x. */
inline start_call(x, its_lease, its_day) {
  assert(row[its_lease].exists);                                     /* the unit is still in the row */
  q[x].state = CALLS; q[x].lease = its_lease; q[x].day = its_day
}

/* The database refuses request x: no live replica has what it needs, so the refusal is true. */
inline check_refusal(x) {
  n = 0;
  for (l : 0 .. R - 1) {
#ifdef CARRYOVER
    if :: m[l].alive && m[l].lease < NONE && row[m[l].lease].exists -> n = n + m[l].idle :: else fi
#else
    if :: m[l].alive && m[l].lease < NONE && row[m[l].lease].exists && m[l].day == today -> n = n + m[l].idle :: else fi
#endif
  }
  assert(n == 0 || LEFT(today) + n < NEED(x));
  skip
}

/* ---------------------------------------------------------------- the database */

/*
 * Whether the end of request x may lower what its row says is idle: no draw has run since the one whose answer its replica knew when it
 * sent the end. The code compares numbers of draws. t: the transaction of the end; `alone`: it has none here and runs at once.
 */
#ifdef F_IDLE_UNNUMBERED
#define writes_idle(x, t)    1
#define writes_idle_alone(x) 1
#else
#define writes_idle(x, t)    (q[x].lease == t.lease && !t.overtaken && !row[t.lease].unheard)
#define writes_idle_alone(x) (q[x].lease == m[q[x].at].lease && !row[q[x].lease].unheard)
#endif

/* Ends request x: once, under the lease that it was granted under. `writes`: it lowers what the row says is idle to `its_idle`. */
#ifdef F_LATE_KEY
#define MAY_TAKE 1
#else
#define MAY_TAKE (key_taken < CEILING)
#endif
inline finish(x) {
  if
#ifndef F_NO_RECEIPT
  :: q[x].receipt
#else
  :: false
#endif
  :: else ->
     q[x].receipt = 1;
     if
     :: row[q[x].lease].exists ->
        row[q[x].lease].units[q[x].day] = row[q[x].lease].units[q[x].day] - NEED(x); taken[q[x].day] = taken[q[x].day] - NEED(x);
        if :: writes && row[q[x].lease].idle[q[x].day] > its_idle -> row[q[x].lease].idle[q[x].day] = its_idle :: else fi;
        if
        :: limited(x) -> row[q[x].lease].key--; key_taken = key_taken - (q[x].charge == 0); key_settled = key_settled + (q[x].charge > 0)
        :: else
        fi;
        /* Above the hold: all of it if it is available, else the hold. */
        n = (q[x].charge <= NEED(x) || q[x].charge <= LEFT(q[x].day) -> q[x].charge : NEED(x));
        taken[q[x].day] = taken[q[x].day] + n; settled[q[x].day] = settled[q[x].day] + n
     :: else ->
        if
        :: q[x].charge > 0 ->
           late++; assert(late <= under_way_at_reaping);
#ifdef F_LATE_NEW_ROW
           l = m[q[x].at].lease; row[l].units[q[x].day] = row[l].units[q[x].day] - NEED(x); taken[q[x].day] = taken[q[x].day] - NEED(x);
           n = NEED(x);
#else
           n = (q[x].charge <= LEFT(q[x].day) -> q[x].charge : LEFT(q[x].day));
#endif
           /* It takes what its key has left, too: nothing, if that is nothing. */
           if
#ifndef F_LATE_KEY
           :: limited(x) && key_taken >= CEILING -> n = 0
#endif
           :: limited(x) && MAY_TAKE -> key_taken++; key_settled++
           :: !limited(x) -> skip
           fi;
           taken[q[x].day] = taken[q[x].day] + n; settled[q[x].day] = settled[q[x].day] + n
        :: else
        fi
     fi
  fi;
  skip
}

/* Decides request x of the transaction t. */
inline decide(t, x) {
  if
  :: t.saw_epoch && concerns(x) -> t.refused = t.refused | (1 << x)
  :: !(t.saw_epoch && concerns(x)) && limited(x) && key_taken >= CEILING -> t.refused = t.refused | (1 << x)
  :: !(t.saw_epoch && concerns(x)) && !(limited(x) && key_taken >= CEILING) ->
     if
     :: LEFT(today) >= NEED(x) ->
        t.granted = t.granted | (1 << x);
        row[t.lease].units[today] = row[t.lease].units[today] + NEED(x); taken[today] = taken[today] + NEED(x);
        if :: limited(x) -> row[t.lease].key++; key_taken++ :: else fi
     :: else ->
#ifndef F_REFUSE_BLINDLY
        if
        :: t.idle > 0 || ANY_ROW(idle_elsewhere, t.lease) ->
           scarce = 1;                                                /* "recall": neither granted nor refused */
           for (l : 0 .. LEASES - 1) { if :: idle_elsewhere(l, t.lease) -> row[l].recalled = 1 :: else fi }
        :: else ->
#else
        if
        :: true ->
#endif
           scarce = 1;
           t.refused = t.refused | (1 << x);
           check_refusal(x)
        fi
     fi
  fi
}

/* The draw: give back what is not kept, decide the requests, draw ahead, write down what lies idle. */
inline draw(t, r, given_up) {
  t.new_epoch = t.saw_epoch;
  for (d : 0 .. DAYS - 1) {
    if
#ifdef F_KEEP_RAISES
    :: row[t.lease].units[d] != t.keep[d] ->
#else
    :: row[t.lease].units[d] > t.keep[d] ->
#endif
       taken[d] = taken[d] - row[t.lease].units[d] + t.keep[d]; row[t.lease].units[d] = t.keep[d]
    :: else
    fi;
    row[t.lease].idle[d] = 0
  }
#if CEILING > 0
  if :: row[t.lease].key > t.keep_key -> key_taken = key_taken - row[t.lease].key + t.keep_key; row[t.lease].key = t.keep_key :: else fi;
#endif
  row[t.lease].idle[t.idle_day] = t.idle;
  today = TODAY; t.day = today; scarce = 0;
#if DAYS == 2
  t.good = (today -> V : D - now);
#else
  t.good = V;
#endif
  for (i : 0 .. NREQ - 1) { if :: has(t.requests, i) -> decide(t, i) :: else fi }
#if REVOKE == PACKAGE || REVOKE == TENANT
  t.stands = !t.saw_epoch;
#else
  t.stands = 1;
#endif
  if
  :: !scarce && t.stands ->
     t.got = (t.ask <= LEFT(today) -> t.ask : LEFT(today));
     row[t.lease].units[today] = row[t.lease].units[today] + t.got; taken[today] = taken[today] + t.got;
     row[t.lease].idle[today] = row[t.lease].idle[today] + t.got
  :: else
  fi;
  /* The row's epoch is what the replica has acknowledged: for idle units that it keeps, the one that it knows. */
#ifdef F_KEPT_EPOCH
  row[t.lease].epoch = t.saw_epoch;
#else
  row[t.lease].epoch = (t.idle > 0 && t.epoch < t.saw_epoch -> t.epoch : t.saw_epoch);
#endif
  row[t.lease].recalled = 0;
  if
  :: row[t.lease].exists || t.granted || t.got ->
     if :: m[r].lease == t.lease -> m[r].surprised = given_up && (m[r].surprised || !row[t.lease].exists) :: else fi;
     row[t.lease].exists = 1; row[t.lease].unheard = given_up;
#ifndef F_NUMBERS
     /* Draws are numbered. Only one that was given up can be older than one that runs. */
     if :: lost[r].open && lost[r].lease == t.lease -> lost[r].overtaken = 1 :: else fi
#endif
  :: else -> row[t.lease].epoch = 0                                  /* no row, and a refusal writes none */
  fi
}

inline read_first(t) {
  t.begun = 1; t.saw_ended = ended[t.lease]; t.saw_epoch = epoch
}

inline execute(t, r, given_up) {
#ifndef SPLIT
  read_first(t);
#else
  lock = 0;
#if REVOKE != TENANT && !defined(F_SNAPSHOT)
  t.saw_epoch = epoch;
#endif
#endif
  for (i : 0 .. NREQ - 1) {
    if
    :: has(t.ends, i) ->
       writes = writes_idle(i, t); its_idle = (q[i].day == t.idle_day -> t.idle : 0);
       finish(i)
    :: else
    fi
  }
  if
  :: t.saw_ended -> t.lease_ended = 1
  :: !t.saw_ended && !t.overtaken && !t.only_ends -> draw(t, r, given_up)
  :: else
  fi;
  t.after_revocation = epoch;
  t.done = 1;
  t.begun = 0; t.saw_ended = 0; t.saw_epoch = 0; t.overtaken = 0; t.ask = 0; t.epoch = 0; t.keep_key = 0;
  for (d : 0 .. DAYS - 1) { t.keep[d] = 0 }
  check_books(); check_cover()
}

/* ---------------------------------------------------------------- a replica */

inline clear(t) {
  t.open = 0; t.begun = 0; t.done = 0; t.lease = 0; t.age = 0; t.overtaken = 0; t.only_ends = 0; t.ends = 0; t.keep_key = 0; t.idle = 0; t.idle_day = 0; t.epoch = 0;
  t.requests = 0; t.ask = 0; t.saw_ended = 0; t.saw_epoch = 0; t.granted = 0; t.refused = 0; t.got = 0; t.day = 0; t.good = 0; t.new_epoch = 0;
  t.stands = 0; t.lease_ended = 0; t.after_revocation = 0;
  for (d : 0 .. DAYS - 1) { t.keep[d] = 0 };
  skip
}

inline forget_idle(r) { m[r].idle = 0; m[r].day = 0; m[r].until = 0; m[r].epoch = 0 }

/* Sends a draw. What is not kept leaves memory first. kept: whether idle units are kept. */
inline send(r, kept, ahead, ride) {
  if :: !kept -> forget_idle(r) :: else fi;
  m[r].unknown = 0;
  cur[r].open = 1; cur[r].lease = m[r].lease; cur[r].ask = ahead;
  cur[r].idle = m[r].idle; cur[r].idle_day = m[r].day; cur[r].epoch = m[r].epoch;
  cur[r].keep[m[r].day] = m[r].idle;
  for (i : 0 .. NREQ - 1) {
    if
    :: waits(i, r) && !grantable(i, r) -> cur[r].requests = cur[r].requests | (1 << i)
    :: ride && ends_wait(i, r) -> cur[r].ends = cur[r].ends | (1 << i)
#ifdef F_KEEP_FORGETS
    :: under_way(i, m[r].lease) && q[i].at == r && q[i].state == CALLS ->
#else
    :: under_way(i, m[r].lease) && q[i].at == r && !(ride && q[i].state != CALLS) ->
#endif
       cur[r].keep[q[i].day] = cur[r].keep[q[i].day] + NEED(i); cur[r].keep_key = cur[r].keep_key + limited(i)
    :: else
    fi
  };
  skip
}

inline take_lease(r) {
  forget_idle(r); m[r].unknown = 0; m[r].surprised = 0;
  if
  :: leases_taken < NONE -> m[r].lease = leases_taken; leases_taken++; ends_at[m[r].lease] = now + L; m[r].bound = now + L
  :: else -> m[r].lease = NONE; m[r].bound = 0
  fi;
  skip
}

/* The end of request x is in the database. If it had to be repeated, a draw in between may have counted it although it was over. */
inline end_acknowledged(x) {
  q[x].state = DONE;
#ifndef F_ALREADY
  if :: q[x].repeated && q[x].lease == m[q[x].at].lease -> m[q[x].at].unknown = 1 :: else fi;
#endif
  q[x].repeated = 0
}

/* The answer of a draw that may have run does not count. */
#define unheard(t) row[t.lease].unheard = row[t.lease].exists

/* What an answer changes in memory. t is the draw that the replica waits for. */
inline accept(t, r) {
  if
  :: t.lease_ended && t.lease == m[r].lease -> take_lease(r)
#if defined(F_ANSWER_UNBOUNDED) || defined(F_VALID_FROM_ANSWER)
  :: !t.lease_ended && t.lease == m[r].lease ->
#elif defined(F_OTHER_LEASE)
  :: !t.lease_ended && t.age < V && now < m[r].bound ->
#elif defined(F_NO_LEASE_BOUND)
  :: !t.lease_ended && t.lease == m[r].lease && t.age < V ->
#else
  :: !t.lease_ended && t.lease == m[r].lease && t.age < V && now < m[r].bound ->
#endif
#ifdef F_UNKNOWN_CLEARED
     m[r].unknown = 0;
#endif
     for (i : 0 .. NREQ - 1) {
       if
       :: has(t.granted, i) && q[i].state == WAITS ->
          assert(!(revocation_returned && t.after_revocation && concerns(i)));
          start_call(i, t.lease, t.day)
       :: else
       fi
     }
#if DAYS == 2 && !defined(F_DAY)
     if :: m[r].idle > 0 && m[r].day != t.day -> forget_idle(r); m[r].unknown = 1 :: else fi;
#endif
#ifndef F_RENEW_ANYWAY
     if :: m[r].idle > 0 && !t.stands -> forget_idle(r); m[r].unknown = 1 :: else fi;
#endif
     m[r].idle = m[r].idle + t.got;
     if
     :: m[r].idle > 0 ->
#ifdef F_VALID_FROM_ANSWER
        m[r].until = now + V;
#elif defined(F_DAY)
        m[r].until = now - t.age + V;
#else
        m[r].until = now - t.age + (t.good < V -> t.good : V);
#endif
        if :: m[r].until <= now -> m[r].until = 0 :: else fi;
        m[r].day = t.day; m[r].epoch = t.new_epoch
     :: else
     fi
  :: else -> if :: t.lease == m[r].lease -> m[r].unknown = 1; unheard(t) :: else fi /* too late: as if it had been lost */
  fi;
  for (i : 0 .. NREQ - 1) {
    if
    :: has(t.ends, i) && ends_wait(i, r) -> end_acknowledged(i)
    :: has(t.refused, i) && q[i].state == WAITS -> q[i].state = REFUSED
    :: else
    fi
  }
  clear(t); check_cover();
  skip
}

inline move_to_lost(r) {
  m[r].unknown = m[r].alive;
  if :: cur[r].done -> unheard(cur[r]) :: else fi;
  for (i : 0 .. NREQ - 1) { if :: has(cur[r].ends, i) -> q[i].repeated = 1 :: else fi }
#ifdef F_LATE_ANSWER
  if
  :: true ->
#else
  if
  :: !cur[r].done ->
#endif
     lost[r].open = 1; lost[r].done = cur[r].done; lost[r].lease = cur[r].lease; lost[r].ends = cur[r].ends;
     lost[r].idle = cur[r].idle; lost[r].idle_day = cur[r].idle_day; lost[r].epoch = cur[r].epoch; lost[r].keep_key = cur[r].keep_key;
     lost[r].requests = cur[r].requests; lost[r].ask = cur[r].ask;
#ifdef F_LATE_ANSWER
     lost[r].granted = cur[r].granted; lost[r].refused = cur[r].refused; lost[r].got = cur[r].got; lost[r].day = cur[r].day; lost[r].good = cur[r].good;
#endif
     for (d : 0 .. DAYS - 1) { lost[r].keep[d] = cur[r].keep[d] }
  :: else
  fi;
  clear(cur[r]);
  skip
}

/* Requests of the process are over. What its disk has stays. What it has drawn stays until its lease ends. */
inline crash(r) {
  m[r].alive = 0; m[r].lease = NONE; m[r].bound = 0; m[r].told = 0; m[r].unknown = 0; m[r].surprised = 0; forget_idle(r);
  for (i : 0 .. NREQ - 1) { if :: q[i].at == r && (q[i].state == WAITS || q[i].state == CALLS || q[i].state == ENDS) -> q[i].state = GONE :: else fi }
  if
  :: cur[r].open && !cur[r].begun && !lost[r].open -> move_to_lost(r)
  :: cur[r].open && !(!cur[r].begun && !lost[r].open) -> if :: cur[r].begun -> lock = 0 :: else fi; clear(cur[r])
  :: else
  fi;
  skip
}

proctype Replica(byte r) {
end: do
  /* A request, or units that the replica does not know, need a draw. */
  :: d_step { may_draw(r) && m[r].idle > 0 && !must_return(r) && (ANY(worth_it, r) || needs_draw(r)) -> send(r, 1, 0, 0) }
  :: d_step { may_draw(r) && (ANY(worth_it, r) || needs_draw(r)) -> send(r, 0, 0, 0) }
  :: d_step { may_draw(r) && AHEAD > 0 && ANY(worth_it, r) && !m[r].draining -> send(r, 0, AHEAD, 0) }
#ifdef RIDE
  :: d_step { may_draw(r) && ANY(ends_wait, r) && (ANY(worth_it, r) || needs_draw(r)) -> send(r, 0, 0, 1) }
#endif
#ifdef RENEW
  /* Once a tick it renews what it keeps. */
  :: d_step { may_draw(r) && m[r].idle > 0 && !must_return(r) && m[r].until < now + V -> send(r, 1, 0, 0) }
#endif
#if LOST > 0
  /* Every few seconds it compares its rows with what it knows. */
  :: d_step { m[r].surprised && m[r].alive && m[r].lease < NONE -> m[r].surprised = 0; m[r].unknown = my_row.exists }
#endif
  /* It gives back what nobody wants, or what was recalled. */
  :: d_step { may_draw(r) && m[r].idle > 0 && (must_return(r) || !ANY(waits, r)) -> send(r, 0, 0, 0) }
  :: d_step { m[r].alive && cur[r].open && cur[r].done -> accept(cur[r], r) }
#if LOST > 0
  /* It gives up. The server may have run the draw, may run it later, or never. */
  :: d_step { losses > 0 && m[r].alive && cur[r].open && !lost[r].open && !cur[r].begun -> losses--; move_to_lost(r) }
#endif
#ifdef F_LATE_ANSWER
  :: d_step { m[r].alive && lost[r].open && lost[r].done -> accept(lost[r], r) }
#endif
#if T > L
  :: d_step { m[r].alive && m[r].lease < NONE && !ended[m[r].lease] && m[r].bound < now + L -> m[r].bound = now + L; ends_at[m[r].lease] = now + L }
  :: d_step { m[r].alive && m[r].lease < NONE && ended[m[r].lease] -> take_lease(r) }
#endif
#if REVOKE > 0
  :: d_step { m[r].alive && epoch && !m[r].told -> m[r].told = 1 }
#endif
#ifdef DRAIN
  :: d_step { r == 0 && m[r].alive && !m[r].draining -> m[r].draining = 1 }
  :: d_step { m[r].draining && m[r].alive && !cur[r].open && m[r].idle == 0 && !ANY(waits, r) && SUM(kept_for, r) == 0 && !m[r].unknown ->
       assert(m[r].surprised || m[r].lease == NONE || ROW_UNITS(m[r].lease) == 0);
       m[r].alive = 0 }
#endif
#if CRASHES > 0
  :: d_step { crashes > 0 && m[r].alive -> crashes--; crash(r) }
  :: d_step { !m[r].alive && !m[r].draining && leases_taken < NONE -> m[r].alive = 1; take_lease(r) }
#endif
  od
}

/* Postgres runs what was sent to it. */
proctype Server(byte r) {
end: do
#ifdef SPLIT
#ifdef F_SNAPSHOT
  :: d_step { cur[r].open && !cur[r].done && !cur[r].begun -> read_first(cur[r]) }
  :: d_step { cur[r].begun && lock == 0 -> execute(cur[r], r, 0) }
#else
  :: d_step { cur[r].open && !cur[r].done && !cur[r].begun && lock == 0 -> lock = r + 1; read_first(cur[r]) }
  :: d_step { cur[r].begun -> execute(cur[r], r, 0) }
#endif
#else
  :: d_step { cur[r].open && !cur[r].done -> execute(cur[r], r, 0) }
#endif
#if LOST > 0 || CRASHES > 0
  :: d_step { lost[r].open && !lost[r].done && unlocked ->
       read_first(lost[r]);
       execute(lost[r], r, 1);
#ifndef F_LATE_ANSWER
       clear(lost[r])
#endif
     }
  :: d_step { lost[r].open && !lost[r].done -> clear(lost[r]) }
#endif
  od
}

/* ---------------------------------------------------------------- a request */

#define arrives(x, r, s) q[x].state == NEW && m[r].alive && !m[r].draining && (x == 0 || q[x - 1].state != NEW) -> q[x].state = WAITS; q[x].at = r; q[x].special = s

#ifdef F_TWO_BATCHES
#define ALONE(x) !(cur[q[x].at].open && has(cur[q[x].at].ends, x))
#else
#define ALONE(x) !cur[q[x].at].open
#endif

#define may_give_up(x, r) (m[r].alive && m[r].lease < NONE && q[x].state == ENDS && !q[x].receipt && !q[x].repeated && !lost[r].open)

inline finish_alone(x) {
  writes = writes_idle_alone(x);
  its_idle = (q[x].day == m[q[x].at].day -> m[q[x].at].idle : 0);
  finish(x)
}

/* The end of request x is given up before it has run: it may run later, or never, and is sent again. */
inline give_up_end(x, r) {
  q[x].repeated = 1;
  lost[r].open = 1; lost[r].only_ends = 1; lost[r].lease = m[r].lease; lost[r].ends = 1 << x;
  lost[r].idle = m[r].idle; lost[r].idle_day = m[r].day; lost[r].overtaken = row[m[r].lease].unheard
}

proctype Client(byte x) {
end: do
  :: d_step { arrives(x, 0, 0) }
#if (REVOKE == KEY) || (CEILING > 0)
  :: d_step { arrives(x, 0, 1) }
#endif
  :: d_step { x > 0 && arrives(x, 1, 0) }
#if (REVOKE == KEY) || (CEILING > 0)
  :: d_step { x > 0 && arrives(x, 1, 1) }
#endif
#if R > 2
  :: d_step { x > 1 && arrives(x, 2, 0) }
#endif
  /* Granted from memory. */
  :: d_step { q[x].state == WAITS && m[q[x].at].alive && !in_draw(x, q[x].at) && grantable(x, q[x].at) ->
       assert(!(revocation_returned && concerns(x)));
       assert(m[q[x].at].day == TODAY);                              /* a unit of yesterday is not granted today */
       m[q[x].at].idle = m[q[x].at].idle - NEED(x);
       start_call(x, m[q[x].at].lease, m[q[x].at].day);
       if :: m[q[x].at].idle == 0 -> forget_idle(q[x].at) :: else fi;
       check_cover() }
  /* The provider has answered, or failed. */
  :: d_step { q[x].state == CALLS -> q[x].state = ENDS; q[x].charge = NEED(x) }
#ifdef MONEY
  :: d_step { q[x].state == CALLS -> q[x].state = ENDS; q[x].charge = NEED(x) - 1 }
  :: d_step { q[x].state == CALLS -> q[x].state = ENDS; q[x].charge = NEED(x) + 1 }
#endif
#ifdef F_REUSE
  :: d_step { q[x].state == CALLS && q[x].lease == m[q[x].at].lease -> q[x].state = DONE; m[q[x].at].idle++; m[q[x].at].until = now + V }
#else
  :: d_step { q[x].state == CALLS -> q[x].state = ENDS; q[x].charge = 0 }
#endif
#ifdef SPOOL
  :: d_step { q[x].state == ENDS && q[x].charge > 0 -> q[x].state = SPOOLED }
#endif
  /* Its end alone, without a draw; the answer comes later. */
#ifdef F_NO_RECEIPT
  :: d_step { (q[x].state == ENDS || q[x].state == SPOOLED) && m[q[x].at].alive && unlocked -> finish_alone(x); check_books(); check_cover() }
#else
  :: d_step { (q[x].state == ENDS || q[x].state == SPOOLED) && m[q[x].at].alive && !q[x].receipt && unlocked && ALONE(x) -> finish_alone(x); check_books(); check_cover() }
#endif
  :: d_step { (q[x].state == ENDS || q[x].state == SPOOLED) && m[q[x].at].alive && q[x].receipt && ALONE(x) -> end_acknowledged(x) }
#if LOST > 0
  :: d_step { losses > 0 && may_give_up(x, q[x].at) && ALONE(x) -> losses--; give_up_end(x, q[x].at) }
  :: d_step { losses > 0 && m[q[x].at].alive && (q[x].state == ENDS || q[x].state == SPOOLED) && q[x].receipt && !q[x].repeated && ALONE(x) -> losses--; q[x].repeated = 1 }
#endif
  /* 503: the time is up, and those who have the units are dead; or this replica has no lease. */
  :: d_step { q[x].state == WAITS && now == T && !in_draw(x, q[x].at) && (m[q[x].at].lease == NONE || ANY_ROW(orphan_idle, 0)) -> q[x].state = BUSY }
  od
}

/* ---------------------------------------------------------------- the world */

proctype Reaper() {
end: do
#if T > L || CRASHES > 0
#define REAP(lease) \
  :: d_step { lease < leases_taken && !ended[lease] && now > ends_at[lease] -> ended[lease] = 1; ends_at[lease] = 0 } \
  :: d_step { REAPABLE(lease) -> \
       if :: row[lease].exists -> \
          for (d : 0 .. DAYS - 1) { taken[d] = taken[d] - row[lease].units[d]; row[lease].units[d] = 0; row[lease].idle[d] = 0 } \
          key_taken = key_taken - row[lease].key; row[lease].key = 0; row[lease].exists = 0; row[lease].epoch = 0; row[lease].recalled = 0; row[lease].unheard = 0; \
          for (i : 0 .. NREQ - 1) { if :: (under_way(i, lease) || left_behind(i, lease)) && !q[i].receipt -> under_way_at_reaping++ :: else fi } \
       :: else fi; \
       check_books() }
#ifdef F_SCAN_ONCE
#define REAPABLE(lease) ended[lease] && !scanned[lease] && (!row[lease].exists || unlocked) -> scanned[lease] = 1; true
#else
#define REAPABLE(lease) ended[lease] && row[lease].exists && unlocked
#endif
  REAP(0)
  REAP(1)
#if LEASES > 2
  REAP(2)
#endif
#if LEASES > 3
  REAP(3)
#endif
#endif
  :: false
  od
}

proctype Revocation() {
end: do
#if REVOKE == TENANT
  :: d_step { !epoch -> epoch = 1; revoked_at = now }
  :: d_step { epoch && !revocation_returned && now >= revoked_at + V -> revocation_returned = 1; revoked_at = 0 }
#elif REVOKE > 0
  :: d_step { !epoch && unlocked -> epoch = 1; revoked_at = now }
#ifdef F_REVOKE_AT_ONCE
  :: d_step { epoch && !revocation_returned -> revocation_returned = 1; revoked_at = 0 }
#else
  :: d_step { epoch && !revocation_returned && (now >= revoked_at + V || !ANY_ROW(unacknowledged, 0)) -> revocation_returned = 1; revoked_at = 0 }
#endif
#endif
  :: false
  od
}

proctype Clock() {
end: do
  :: d_step { now < T ->
       now++;
       for (i : 0 .. R - 1) {
         if :: cur[i].open && cur[i].age < V -> cur[i].age++ :: else fi;
         if :: m[i].until <= now -> m[i].until = 0 :: else fi;
         if :: m[i].bound <= now -> m[i].bound = 0 :: else fi
       };
       skip }
  od
}

/* When nothing can happen any more: every request has its answer, and nothing lies drawn that the reaper may not take yet. */
proctype End() {
  timeout ->
  d_step {
    assert(now == T);
    for (i : 0 .. NREQ - 1) {
      assert(q[i].state == DONE || q[i].state == REFUSED || q[i].state == BUSY || q[i].state == GONE ||
             (!m[q[i].at].alive && q[i].state == SPOOLED) || q[i].state == NEW)
    }
    for (l : 0 .. LEASES - 1) {
      assert(ROW_UNITS(l) == 0 || (!ended[l] && now <= ends_at[l] && !ANY_REPLICA(owns, l)))
    }
  }
}

init {
  atomic {
    for (i : 0 .. R - 1) { m[i].alive = 1; m[i].lease = i; m[i].bound = L; ends_at[i] = L }
    for (i : 0 .. R - 1) { run Replica(i); run Server(i) }
    for (i : 0 .. NREQ - 1) { run Client(i) }
    run Reaper(); run Revocation(); run Clock(); run End()
  }
}
