// Dual numbers: a value with its derivatives by the four or five numbers of the predicted box.
//
// Ties follow torch: the gradient of max and min is shared, that of abs and relu is 0 at 0.

class Dual {
  constructor(value, a = 0, b = 0, c = 0, d = 0, e = 0) {
    this.value = value;
    this.a = a;
    this.b = b;
    this.c = c;
    this.d = d;
    this.e = e;
  }

  static lift(x) {
    return x instanceof Dual ? x : new Dual(x);
  }

  /** The four numbers of a box and perhaps its angle, each its own variable. */
  static variables([p, q, r, s, angle = 0]) {
    return [
      new Dual(p, 1),
      new Dual(q, 0, 1),
      new Dual(r, 0, 0, 1),
      new Dual(s, 0, 0, 0, 1),
      new Dual(angle, 0, 0, 0, 0, 1),
    ];
  }

  get gradient() {
    return [this.a, this.b, this.c, this.d, this.e];
  }

  /** A function of this number, by its value and its slope. */
  chain(value, slope) {
    return new Dual(
      value,
      slope * this.a,
      slope * this.b,
      slope * this.c,
      slope * this.d,
      slope * this.e,
    );
  }

  /** A function of two numbers, by its value and its slopes. */
  join(other, value, slope, otherSlope) {
    return new Dual(
      value,
      slope * this.a + otherSlope * other.a,
      slope * this.b + otherSlope * other.b,
      slope * this.c + otherSlope * other.c,
      slope * this.d + otherSlope * other.d,
      slope * this.e + otherSlope * other.e,
    );
  }

  plus(x) {
    const other = Dual.lift(x);
    return this.join(other, this.value + other.value, 1, 1);
  }

  minus(x) {
    const other = Dual.lift(x);
    return this.join(other, this.value - other.value, 1, -1);
  }

  times(x) {
    const other = Dual.lift(x);
    return this.join(other, this.value * other.value, other.value, this.value);
  }

  over(x) {
    const other = Dual.lift(x);
    const quotient = this.value / other.value;
    // A denominator of infinity is a way to say "nothing": 0, and flat.
    if (other.value === Infinity) return new Dual(0);
    return this.join(other, quotient, 1 / other.value, -quotient / other.value);
  }

  negative() {
    return this.chain(-this.value, -1);
  }

  square() {
    return this.chain(this.value * this.value, 2 * this.value);
  }

  abs() {
    return this.chain(Math.abs(this.value), Math.sign(this.value));
  }

  relu() {
    return this.value > 0 ? this : new Dual(0);
  }

  max(x) {
    const other = Dual.lift(x);
    if (this.value === other.value) return this.join(other, this.value, 0.5, 0.5);
    return this.value > other.value ? this : other;
  }

  min(x) {
    const other = Dual.lift(x);
    if (this.value === other.value) return this.join(other, this.value, 0.5, 0.5);
    return this.value < other.value ? this : other;
  }

  /** At least a number; unlike `max`, the whole gradient at the number itself. */
  atLeast(least) {
    return this.value >= least ? this : new Dual(least);
  }

  pow(exponent) {
    return this.chain(this.value ** exponent, exponent * this.value ** (exponent - 1));
  }

  exp() {
    const value = Math.exp(this.value);
    return this.chain(value, value);
  }

  expm1() {
    return this.chain(Math.expm1(this.value), Math.exp(this.value));
  }

  log() {
    return this.chain(Math.log(this.value), 1 / this.value);
  }

  log1p() {
    return this.chain(Math.log1p(this.value), 1 / (1 + this.value));
  }

  cos() {
    return this.chain(Math.cos(this.value), -Math.sin(this.value));
  }

  sin() {
    return this.chain(Math.sin(this.value), Math.cos(this.value));
  }

  /** The square root, with slope 0 at 0. */
  root() {
    return this.value > 0 ? this.pow(0.5) : new Dual(0);
  }

  atan2(other) {
    const squared = this.value ** 2 + other.value ** 2;
    const angle = Math.atan2(this.value, other.value);
    return this.join(other, angle, other.value / squared, -this.value / squared);
  }

  /** The same value, its gradient multiplied by a factor. */
  scaleGradient(factor) {
    return this.chain(this.value, factor);
  }
}
